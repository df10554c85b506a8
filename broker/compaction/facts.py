"""What the plan of a pass has to know of a replica, and what the pass itself has to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from broker.config.topic_config import TopicConfig
from broker.config.values import INT64_MAX
from broker.replication.replica import Replica
from storage.aborted_index import AbortedTransaction
from storage.compaction.batch_filter import PassRules
from storage.compaction.counts import Expiry, PassCounts
from storage.compaction.plan import CompactionSettings, LogFacts, Plan, SegmentFacts
from storage.compaction.producers import last_offsets
from storage.log import Log
from storage.log_cleaning import CleaningTask


class HeldBack(NamedTuple):
    """The first of what the last pass left for later. None: nothing, or no pass has told since this process began."""

    tombstones: Expiry | None = None
    markers: Expiry | None = None
    remnants: Expiry | None = None

    @classmethod
    def by(cls, counts: PassCounts) -> HeldBack:
        return cls(counts.tombstones.first, counts.markers.first, counts.remnants.first)


def settings_of(config: TopicConfig) -> CompactionSettings:
    return CompactionSettings(
        config.is_compacted,
        config.min_compaction_lag_ms,
        config.max_compaction_lag_ms,
        config.min_cleanable_dirty_ratio,
    )


def log_facts(replica: Replica, recorded_end: int, held: HeldBack) -> LogFacts:
    """`recorded_end`: how far the log is durable by the journal. Nothing above is cleaned, because recovery takes what
    lacks below it for corruption. Nor is anything above the newest producer snapshot below it: what producers wrote
    cannot be replayed from a compacted log."""
    log, bounds = replica.log, replica.bounds
    end = min(replica.high_watermark, recorded_end, log.newest_snapshot_offset(below=recorded_end))
    return LogFacts(
        segment_facts(log, bounds.cleaned_end, with_ages=replica.config.max_compaction_lag_ms < INT64_MAX),
        log.start_offset,
        bounds.cleaned_end,
        end,
        replica.last_stable_offset,
        bounds.mtro,
        bounds.mxro,
        *held,
    )


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


def cleaning_task(
    replica: Replica,
    plan: Plan,
    aborted: Sequence[AbortedTransaction],
    *,
    now_ms: int,
    producer_id_expiration_ms: int,
    map_bytes: int,
) -> CleaningTask:
    log, bounds, config = replica.log, replica.bounds, replica.config
    rules = PassRules(
        now_ms,
        config.delete_retention_ms,
        producer_id_expiration_ms,
        bounds.cleaned_end,
        bounds.mtro,
        bounds.mxro,
        log.end_offset - 1,
        last_offsets(replica.producers, replica.high_watermark),
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
