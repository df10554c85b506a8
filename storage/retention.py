"""Which old segments retention deletes: a pure decision (Kafka's retention.ms and retention.bytes)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class SegmentFacts(NamedTuple):
    #: Base offset of the next segment, or the log end.
    end_offset: int
    size_bytes: int
    #: Largest record timestamp. -1: it is unknown, and the segment never expires by time.
    max_timestamp_ms: int


def retention_start(
    segments: Sequence[SegmentFacts],
    start_offset: int,
    *,
    now_ms: int,
    retention_ms: int,
    retention_bytes: int,
    up_to_offset: int,
) -> int:
    """The new log start: the end of the last segment that may be deleted by time or size.

    Whole segments are deleted, oldest first, and none that reaches above `up_to_offset`. By size a segment is deleted
    only if what is left still holds `retention_bytes`. A negative limit is no limit. The result is never below
    `start_offset`.
    """
    excess_bytes = sum(segment.size_bytes for segment in segments) - retention_bytes
    for segment in segments:
        is_old = retention_ms >= 0 and 0 <= segment.max_timestamp_ms < now_ms - retention_ms
        is_excess = retention_bytes >= 0 and excess_bytes >= segment.size_bytes > 0
        if segment.end_offset > up_to_offset or not (is_old or is_excess):
            break
        excess_bytes -= segment.size_bytes
        start_offset = max(start_offset, segment.end_offset)
    return start_offset
