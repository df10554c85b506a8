"""A compaction that is done between two callbacks, for tests of the oracles: the real plan, key map, filter and swap on
the log of a running node, and bounds that are computed by somebody who sees all nodes at once."""

from __future__ import annotations

from collections.abc import Sequence

from broker.replication.replica import Replica
from broker.replication.watermarks.bounds import DurableBounds
from protocol.records.batch import BatchHeader, parse_header
from protocol.records.builder import build_filler
from protocol.schema import Buffer
from storage.aborted_index import AbortedIndex
from storage.compaction.aborted_data import AbortedData
from storage.compaction.batch_filter import BatchFilter, PassRules
from storage.compaction.key_map import KeyMap
from storage.compaction.plan import (
    CompactionSettings,
    LogFacts,
    Plan,
    SegmentFacts,
    group_segments,
    make_plan,
)
from storage.compaction.producers import last_offsets
from storage.journal import Journal
from storage.journal_records import Bounds
from storage.log import Log
from storage.log_types import GroupKey
from storage.producer_snapshot import Snapshot, load_producers, write_snapshot
from storage.segment_swap import SegmentBuild
from tests.simulator.cluster import SimulatedCluster
from tests.simulator.invariants.equal_transactions import aborted_of

MAP_BYTES = 24 * 1000
EAGER = CompactionSettings(
    is_compacted=True, min_compaction_lag_ms=0, max_compaction_lag_ms=2**63 - 1, min_cleanable_dirty_ratio=0.0
)


def raise_group_bounds(cluster: SimulatedCluster, key: GroupKey) -> None:
    """MTRO and MXRO of all members that run, if every member has reported."""
    holders = cluster.holders(key)
    members = {
        member
        for replica in holders.values()
        for configuration in (replica.group.configuration, replica.group.committed_configuration)
        for member in configuration.members
    }
    known = {replica.group.self_id: cluster.nodes[node_id].journal for node_id, replica in holders.items()}
    if not members or not members <= known.keys():
        return
    of_all = [DurableBounds(known[member]).of(key) for member in members]
    mtro = min(bounds.mcco for bounds in of_all)
    mxro = min(bounds.mxfo for bounds in of_all)
    for node_id in holders:
        journal = cluster.nodes[node_id].journal
        bounds = DurableBounds(journal).of(key)
        raised = bounds._replace(mtro=max(bounds.mtro, mtro), mxro=max(bounds.mxro, mxro))
        if raised != bounds:
            cluster.process(node_id).call(_record, journal, raised)


def compact(cluster: SimulatedCluster, node_id: int, key: GroupKey, *, now_ms: int | None = None) -> bool:
    """One pass on one node. Returns whether there was one."""
    process = cluster.process(node_id)
    clock_ms = cluster.clocks[node_id].now_ms() if now_ms is None else now_ms
    return process.call(_compact, cluster, node_id, key, clock_ms)


def _record(journal: Journal, bounds: Bounds) -> None:
    journal.append(bounds)


def _compact(cluster: SimulatedCluster, node_id: int, key: GroupKey, now_ms: int) -> bool:
    node = cluster.nodes[node_id]
    replica, journal = node.replicas.by_key[key], node.journal
    bounds = DurableBounds(journal).of(key)
    plan, segments = _plan(replica, journal, bounds, now_ms)
    if not plan.is_due:
        return False
    log = replica.log
    aborted = [] if replica.last_stable_offset <= log.start_offset else aborted_of(replica)
    data = AbortedData(aborted)
    key_map = KeyMap(MAP_BYTES, plan.first_dirty_offset)
    for header, batch in log.checked_batches(plan.first_dirty_offset, plan.first_uncleanable_offset):
        assert header.next_offset <= plan.first_uncleanable_offset
        if header.next_offset > plan.first_dirty_offset and not key_map.add_batch(batch, data):
            break
    rules = PassRules(
        now_ms,
        replica.config.delete_retention_ms,
        1000,
        bounds.mcco,
        bounds.mtro,
        bounds.mxro,
        log.end_offset - 1,
        last_offsets(replica.producers, replica.high_watermark) | _retried(replica),
    )
    batch_filter = BatchFilter(key_map, data, rules)
    if not any(offset >= key_map.end_offset for offset in log.snapshot_offsets()):
        # A replay of the compacted log would not find all that is known of the producers.
        write_snapshot(log, Snapshot.of(load_producers(log, key_map.end_offset)), replica.high_watermark)
    for group in list(group_segments(segments, key_map.end_offset, log.config.segment_bytes)):
        bases = [segment.base_offset for segment in group]
        index = AbortedIndex()
        for transaction in aborted:
            if key_map.end_offset <= transaction.last_offset and (
                bases[0] <= transaction.last_offset < group[-1].end_offset
            ):
                index.add(transaction)
        _swap(log, batch_filter, bases, group[-1].end_offset, index)
    end_offset = key_map.end_offset
    free_end = end_offset if batch_filter.counts.is_transaction_free else bounds.mxfo
    journal.append(bounds._replace(mcco=max(bounds.mcco, end_offset), mxfo=max(bounds.mxfo, free_end)))
    return True


def _retried(replica: Replica) -> frozenset[int]:
    """The last offsets of all batches that a replica remembers: the answer to any of them may have been lost. To keep
    only the last one of each producer is not enough (`invariants/equal_transactions.py`)."""
    return frozenset(
        batch.last_offset for entry in replica.producers.entries.values() for batch in entry.batches
    )


def _plan(
    replica: Replica, journal: Journal, bounds: Bounds, now_ms: int
) -> tuple[Plan, Sequence[SegmentFacts]]:
    log = replica.log
    ends = [*log._bases[1:], log.end_offset]
    segments = [
        SegmentFacts(segment.base_offset, end, segment.size_bytes, segment.max_timestamp[0], -1)
        for segment, end in zip(log._segments, ends, strict=True)
    ]
    state = journal.state(replica.key)
    recorded = 0 if state is None or state.flushed_end is None else state.flushed_end.end_offset
    end_offset = min(replica.high_watermark, recorded)
    facts = LogFacts(
        segments,
        log.start_offset,
        bounds.mcco,
        end_offset,
        min(replica.last_stable_offset, end_offset),
        bounds.mtro,
        bounds.mxro,
    )
    plan = make_plan(facts, EAGER, now_ms)
    return plan, segments


def _swap(
    log: Log, batch_filter: BatchFilter, bases: Sequence[int], end_offset: int, aborted: AbortedIndex
) -> None:
    stored = [batch for _, batch in log.checked_batches(bases[0], end_offset)]
    kept = [bytes(output) for batch in stored if (output := batch_filter.filter(batch)) is not None]
    batches, headers = _without_holes(log, kept, bases[0], end_offset)
    build = SegmentBuild(log.disk, log.directory, bases, log.config.index_interval_bytes)
    build.append(batches, headers)
    build.finish(end_offset, aborted)
    log.swap(bases, aborted)


def _without_holes(
    log: Log, kept: Sequence[bytes], base_offset: int, end_offset: int
) -> tuple[list[Buffer], list[BatchHeader]]:
    """With fillers, none of which goes on beyond a row of the lineage."""
    batches: list[Buffer] = []
    reached = base_offset
    rows = [row.offset for row in log.lineage.rows]
    for batch in [*kept, None]:
        until = end_offset if batch is None else parse_header(batch).base_offset
        while reached < until:
            next_offset = min([offset for offset in rows if reached < offset < until] + [until])
            batches.append(build_filler(reached, next_offset, log.lineage.term_at_offset(reached)))
            reached = next_offset
        if batch is not None:
            batches.append(batch)
            reached = parse_header(batch).next_offset
    return batches, [parse_header(batch) for batch in batches]
