"""Which old segments retention deletes: a pure decision (Kafka's retention.ms and retention.bytes)."""

from __future__ import annotations

from collections.abc import Sequence

from storage.log_types import StoredSegment


def retention_start(
    segments: Sequence[StoredSegment],
    start_offset: int,
    *,
    now_ms: int,
    retention_ms: int,
    retention_bytes: int,
    up_to_offset: int,
) -> int:
    """The new log start: the end of the last segment that may be deleted by time or size.

    Whole segments are deleted, oldest first, and none that reaches above `up_to_offset`. By size a segment is deleted
    only if what is left still holds `retention_bytes`. A segment of unknown age goes by time once one behind it does:
    compaction may have left no record in it. A negative limit is no limit. The result is never below `start_offset`.
    """
    excess_bytes = sum(segment.size_bytes for segment in segments) - retention_bytes
    for segment in segments:
        is_old = retention_ms >= 0 and 0 <= segment.max_timestamp_ms < now_ms - retention_ms
        is_excess = retention_bytes >= 0 and excess_bytes >= segment.size_bytes > 0
        has_no_age = retention_ms >= 0 and segment.max_timestamp_ms < 0
        if segment.end_offset > up_to_offset or not (is_old or is_excess or has_no_age):
            break
        excess_bytes -= segment.size_bytes
        if is_old or is_excess:
            start_offset = max(start_offset, segment.end_offset)
    return start_offset
