"""Which part of a log is cleaned, whether that is due, and which segments are merged: pure decisions.

Offsets are exclusive upper bounds, as everywhere in coordinated-compaction.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum
from typing import NamedTuple

from storage.compaction.held_back import HeldBack
from storage.segment_files import MAX_RELATIVE_OFFSET


class SegmentFacts(NamedTuple):
    """One segment, as far as compaction has to know it."""

    base_offset: int
    end_offset: int
    """The base offset of the next segment, or the end of the log."""
    size_bytes: int
    max_timestamp_ms: int
    """The newest one of its records. -1: unknown; the segment counts as old then."""
    dirty_since_ms: int
    """The time of its first batch at or above the cleaned end. -1: unknown, or it has none."""


class LogFacts(NamedTuple):
    segments: Sequence[SegmentFacts]
    """All of the log, at least one. The last one is the active segment."""
    log_start_offset: int
    cleaned_end_offset: int
    """MCCO, the checkpoint of the last durable pass. UNSET (-1): the log was never cleaned."""
    high_watermark: int
    """Or the recorded end of this replica's log, if that is lower: nothing is cleaned above it."""
    last_stable_offset: int
    max_tombstone_remove_offset: int
    max_transaction_remove_offset: int
    held: HeldBack
    """What the last pass left for later."""


class CompactionSettings(NamedTuple):
    """Settings of a topic, under Kafka's names."""

    is_compacted: bool
    min_compaction_lag_ms: int
    max_compaction_lag_ms: int
    min_cleanable_dirty_ratio: float


class Obstacle(Enum):
    """Why a log is not cleaned, or not further than it is."""

    POLICY = "cleanup.policy does not contain compact"
    NOTHING_DIRTY = "everything is clean"
    ACTIVE_SEGMENT = "only the active segment is dirty, and that is never compacted"
    HIGH_WATERMARK = "the next segment is not committed as a whole"
    LAST_STABLE_OFFSET = "a transaction in the next segment has not ended"
    MIN_LAG = "the next segment has records younger than min.compaction.lag.ms"
    DIRTY_RATIO = "not more than min.cleanable.dirty.ratio of the log is dirty"


class Trigger(Enum):
    """Why a pass is due."""

    DIRTY_RATIO = "more than min.cleanable.dirty.ratio of the log is dirty"
    MAX_LAG = "a dirty record is older than max.compaction.lag.ms"
    EXPIRED = "a tombstone or a transaction marker may go"


class Plan(NamedTuple):
    """What a pass over the log would do now.

    Invariant: exactly one of `trigger` and `obstacle` is set.
    """

    first_dirty_offset: int
    first_uncleanable_offset: int
    """The dirty range ends here. Equal to `first_dirty_offset`: there is nothing to put into a key map."""
    clean_bytes: int
    dirty_bytes: int
    """Of the segments with a part of the dirty range, whole."""
    oldest_dirty_ms: int
    """The least time of the first dirty batches in the range. -1: unknown, or nothing is dirty."""
    range_limit: Obstacle
    """What keeps the dirty range from going further."""
    trigger: Trigger | None
    obstacle: Obstacle | None
    """Why no pass is due."""

    @property
    def is_due(self) -> bool:
        return self.trigger is not None

    @property
    def dirty_ratio(self) -> float:
        return _ratio(self.clean_bytes, self.dirty_bytes)

    def urgency(self, *, is_internal: bool) -> tuple[bool, float]:
        """The log with the largest one is cleaned first: internal topics before those of users, because coordinators
        load them; among these the one with the largest part dirty."""
        return is_internal, self.dirty_ratio


def make_plan(log: LogFacts, settings: CompactionSettings, now_ms: int) -> Plan:
    """What of the log is dirty and may be cleaned, and whether a pass is due."""
    first_dirty = max(log.cleaned_end_offset, log.log_start_offset)
    first_uncleanable, limit = _end_of_range(log, settings, first_dirty, now_ms)
    clean_bytes = dirty_bytes = 0
    oldest_dirty_ms = -1
    for segment in log.segments[:-1]:
        if segment.end_offset <= first_dirty:
            clean_bytes += segment.size_bytes
        elif segment.end_offset <= first_uncleanable:
            dirty_bytes += segment.size_bytes
            if segment.dirty_since_ms >= 0 and (
                oldest_dirty_ms < 0 or segment.dirty_since_ms < oldest_dirty_ms
            ):
                oldest_dirty_ms = segment.dirty_since_ms
    trigger = obstacle = None
    if not settings.is_compacted:
        limit = obstacle = Obstacle.POLICY
    elif _ratio(clean_bytes, dirty_bytes) > settings.min_cleanable_dirty_ratio:
        trigger = Trigger.DIRTY_RATIO
    elif 0 <= oldest_dirty_ms < now_ms - settings.max_compaction_lag_ms:
        trigger = Trigger.MAX_LAG
    elif _may_something_go(log, now_ms):
        trigger = Trigger.EXPIRED
    else:
        obstacle = Obstacle.DIRTY_RATIO if first_uncleanable > first_dirty else limit
    return Plan(
        first_dirty, first_uncleanable, clean_bytes, dirty_bytes, oldest_dirty_ms, limit, trigger, obstacle
    )


def _end_of_range(
    log: LogFacts, settings: CompactionSettings, first_dirty: int, now_ms: int
) -> tuple[int, Obstacle]:
    """Where the dirty range ends, which is where a segment begins, and why there. An empty one ends where it begins."""
    active = log.segments[-1]
    for segment in log.segments[:-1]:
        if segment.end_offset <= first_dirty:
            continue
        obstacle = None
        if segment.end_offset > log.high_watermark:
            obstacle = Obstacle.HIGH_WATERMARK
        elif segment.end_offset > log.last_stable_offset:
            obstacle = Obstacle.LAST_STABLE_OFFSET
        elif 0 < settings.min_compaction_lag_ms > now_ms - segment.max_timestamp_ms:
            obstacle = Obstacle.MIN_LAG
        if obstacle is not None:
            return max(segment.base_offset, first_dirty), obstacle
    is_all = active.end_offset <= max(first_dirty, active.base_offset)
    limit = Obstacle.NOTHING_DIRTY if is_all else Obstacle.ACTIVE_SEGMENT
    return max(active.base_offset, first_dirty), limit


def _may_something_go(log: LogFacts, now_ms: int) -> bool:
    """Whether a pass would remove the first of what the last one left."""
    tombstone_bound = min(log.max_tombstone_remove_offset, log.cleaned_end_offset)
    marker_bound = min(log.max_transaction_remove_offset, log.cleaned_end_offset)
    return any(
        first is not None and first.horizon_ms <= now_ms and first.end_offset <= bound
        for first, bound in zip(log.held, (tombstone_bound, marker_bound, marker_bound), strict=True)
    )


def _ratio(clean_bytes: int, dirty_bytes: int) -> float:
    total_bytes = clean_bytes + dirty_bytes
    return dirty_bytes / total_bytes if total_bytes else 0.0


def group_segments(
    segments: Sequence[SegmentFacts], range_end_offset: int, map_end_offset: int, segment_bytes: int
) -> Iterator[Sequence[SegmentFacts]]:
    """Yields the sealed segments with anything that the key map may supersede, neighbours together in groups that
    become one segment each.

    None goes beyond the dirty range. A range may end inside a segment, where the log starts or where the last map was
    full; what lies behind need not be committed, and the pass does not know what was aborted there.

    A group is not larger than `segment_bytes` (a single segment may be), and its offsets lie within
    MAX_RELATIVE_OFFSET of its base. Sizes are those before the pass.
    """
    first = 0
    group_bytes = 0
    sealed = [
        segment
        for segment in segments[:-1]
        if segment.base_offset < map_end_offset and segment.end_offset <= range_end_offset
    ]
    for at, segment in enumerate(sealed):
        last_offset = segment.end_offset - 1
        is_too_large = group_bytes + segment.size_bytes > segment_bytes
        if at > first and (is_too_large or last_offset - sealed[first].base_offset > MAX_RELATIVE_OFFSET):
            yield sealed[first:at]
            first, group_bytes = at, 0
        group_bytes += segment.size_bytes
    if sealed:
        yield sealed[first:]
