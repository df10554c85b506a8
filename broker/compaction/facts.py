"""What the plan of a pass has to know of a replica, and what the pass itself has to."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Sequence
from itertools import islice

from broker.config.topic_config import TopicConfig
from broker.config.values import INT64_MAX
from broker.replication.replica import Replica
from raft.types import RemovalBounds
from storage.aborted_index import AbortedTransaction
from storage.aborted_loading import load_aborted
from storage.aborted_transactions import AbortedIndexMissingError
from storage.batch_scan import UncleanableError
from storage.compaction.batch_filter import PassRules
from storage.compaction.held_back import HeldBack
from storage.compaction.plan import CompactionSettings, LogFacts, Plan, SegmentFacts
from storage.compaction.producers import last_offsets
from storage.journal_records import UNSET
from storage.log import Log
from storage.log_cleaning import CleaningTask
from storage.producer_snapshot import SnapshotDamagedError, read_snapshot
from storage.producer_state import ProducerStates

#: A step of `find_held_back` reads so many headers, which takes half a millisecond.
_HEADERS_PER_STEP = 50


def settings_of(config: TopicConfig) -> CompactionSettings:
    return CompactionSettings(
        config.is_compacted,
        config.min_compaction_lag_ms,
        config.max_compaction_lag_ms,
        config.min_cleanable_dirty_ratio,
    )


def removal_bounds(replica: Replica, *, is_coordinated: bool) -> RemovalBounds:
    """Below which offsets tombstones and transaction markers may go: what the whole group has agreed on. None while the
    log is being replayed here. (A pass that has begun before the replay may go on: what such a tombstone deletes has
    gone before it began.)

    Not coordinated, it is what this replica has cleaned itself. A member that is away may still need what goes then
    (`varve demo divergence`)."""
    bounds = replica.bounds
    if replica.is_being_replayed:
        return RemovalBounds(UNSET, UNSET)
    if not is_coordinated:
        return RemovalBounds(bounds.cleaned_end, bounds.durable.mxfo)
    return RemovalBounds(bounds.mtro, bounds.mxro)


def cleanable_end(replica: Replica, recorded_end: int) -> int:
    """`recorded_end`: how far the log is durable by the journal. Nothing above is cleaned, because recovery takes what
    lacks below it for corruption. Nor is anything above the newest producer snapshot below it: what producers wrote
    cannot be replayed from a compacted log."""
    return min(replica.high_watermark, recorded_end, replica.log.newest_snapshot_offset(below=recorded_end))


def log_facts(replica: Replica, end: int, removable: RemovalBounds, held: HeldBack) -> LogFacts:
    """`end`: nothing is cleaned above it."""
    log, bounds = replica.log, replica.bounds
    return LogFacts(
        segment_facts(log, bounds.cleaned_end, with_ages=replica.config.max_compaction_lag_ms < INT64_MAX),
        log.start_offset,
        bounds.cleaned_end,
        end,
        replica.last_stable_offset,
        removable.mtro,
        removable.mxro,
        held,
    )


def find_held_back(replica: Replica) -> Generator[None, None, HeldBack]:
    """What passes of an earlier process have left for later. Yields after each step. Raises CorruptLogError."""
    log, held = replica.log, HeldBack()
    position = log.start_offset
    while replica.is_open and replica.log is log and not held.has_all:
        pinned = last_offsets(replica.producers) | {log.end_offset - 1}
        before = position
        for stored in islice(log.batches(position, replica.bounds.cleaned_end), _HEADERS_PER_STEP):
            held = held.with_batch(stored.header, pinned)
            position = stored.header.next_offset
        if position == before:
            break
        yield
    return held


async def aborted_below(replica: Replica, log: Log, end_offset: int) -> Sequence[AbortedTransaction] | None:
    """The aborted transactions with records below, which is at or below the last stable offset. They are searched in
    the log, where they are not known yet. None: the replica has another log now. Raises CorruptLogError."""
    while replica.is_open and replica.log is log:
        try:
            return log.aborted_between(log.first_stored_offset, end_offset)
        except AbortedIndexMissingError as missing:
            for _ in load_aborted(log, missing.base_offset):
                await asyncio.sleep(0)
    return None


def segment_facts(log: Log, cleaned_end: int, *, with_ages: bool) -> list[SegmentFacts]:
    """`with_ages`: of dirty segments, which are read for that. A segment that is dirty in part counts as old as its
    newest record."""
    facts = []
    for base_offset, end_offset, size_bytes, max_timestamp_ms in log.segments():
        dirty_since_ms = -1
        if with_ages and end_offset > cleaned_end:
            is_all_dirty = base_offset >= cleaned_end
            dirty_since_ms = log.first_timestamp_ms(base_offset) if is_all_dirty else max_timestamp_ms
        facts.append(SegmentFacts(base_offset, end_offset, size_bytes, max_timestamp_ms, dirty_since_ms))
    return facts


def known_at_snapshot(replica: Replica, snapshot_offset: int) -> ProducerStates:
    """What producers had written up to a snapshot, but for those that have expired. Raises UncleanableError.

    A snapshot is of committed state. The replica's own state is also of what may be cut off. (15,000 producers, as many
    as a node remembers by default, take 0.1 s.)"""
    log = replica.log
    try:
        states = read_snapshot(log.disk, log.snapshot_path(snapshot_offset), snapshot_offset)
    except SnapshotDamagedError as error:
        raise UncleanableError(f"the producer snapshot {snapshot_offset} is damaged: {error}") from error
    for producer_id in states.entries.keys() - replica.producers.entries.keys():
        del states.entries[producer_id]
    return states


def cleaning_task(
    replica: Replica,
    plan: Plan,
    removable: RemovalBounds,
    producers: ProducerStates,
    aborted: Sequence[AbortedTransaction],
    *,
    now_ms: int,
    producer_id_expiration_ms: int,
    map_bytes: int,
) -> CleaningTask:
    """`producers`: known at a snapshot at or above the end of the plan."""
    log, bounds, config = replica.log, replica.bounds, replica.config
    assert producers.end_offset >= plan.first_uncleanable_offset
    rules = PassRules(
        now_ms,
        config.delete_retention_ms,
        producer_id_expiration_ms,
        bounds.cleaned_end,
        removable.mtro,
        removable.mxro,
        log.end_offset - 1,
        last_offsets(producers),
    )
    return CleaningTask(
        log.directory,
        segment_facts(log, bounds.cleaned_end, with_ages=False),
        [(row.offset, row.term) for row in log.lineage.rows],
        plan.first_dirty_offset,
        plan.first_uncleanable_offset,
        rules,
        aborted,
        map_bytes,
        config.segment_bytes,
        config.index_interval_bytes,
    )
