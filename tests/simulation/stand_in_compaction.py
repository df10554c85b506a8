"""A compaction that is done between two callbacks, for tests of the oracles: the real plan and pass on the log of a
running node, and bounds that are computed by somebody who sees all nodes at once."""

from __future__ import annotations

from broker.compaction.facts import cleaning_task, known_at_snapshot, segment_facts
from broker.replication.replica import Replica
from broker.replication.watermarks.bounds import DurableBounds
from raft.types import RemovalBounds
from storage.compaction.held_back import HeldBack
from storage.compaction.plan import CompactionSettings, LogFacts, Plan, make_plan
from storage.journal import Journal
from storage.journal_records import Bounds
from storage.log_cleaning import MapReady, PassOver, SegmentReady, clean
from storage.log_types import GroupKey
from storage.producer_snapshot import Snapshot, load_producers, write_snapshot
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
    plan = _plan(replica, journal, bounds, now_ms)
    if not plan.is_due:
        return False
    log = replica.log
    aborted = [] if replica.last_stable_offset <= log.start_offset else aborted_of(replica)
    end_offset = plan.first_uncleanable_offset
    if log.newest_snapshot_offset() < end_offset:
        # A replay of the compacted log would not find all that is known of the producers.
        write_snapshot(log, Snapshot.of(load_producers(log, end_offset)), replica.high_watermark)
    producers = known_at_snapshot(replica, log.newest_snapshot_offset())
    task = cleaning_task(
        replica,
        plan,
        RemovalBounds(bounds.mtro, bounds.mxro),
        producers,
        aborted,
        now_ms=now_ms,
        producer_id_expiration_ms=1000,
        map_bytes=MAP_BYTES,
    )
    rules = task.rules._replace(cleaned_end_offset=bounds.mcco)
    for event in clean(log.disk, task._replace(rules=rules)):
        match event:
            case MapReady(end_offset):
                bounds = bounds._replace(rewritten_end=max(bounds.rewritten_end, end_offset))
                journal.append(bounds)
                journal.flush()
            case SegmentReady(bases, aborted_in_segment):
                log.swap(bases, aborted_in_segment)
            case PassOver(end_offset, free_end, _):
                mcco, mxfo = max(bounds.mcco, end_offset), max(bounds.mxfo, free_end)
                journal.append(bounds._replace(mcco=mcco, mxfo=mxfo))
    return True


def _plan(replica: Replica, journal: Journal, bounds: Bounds, now_ms: int) -> Plan:
    log, state = replica.log, journal.state(replica.key)
    recorded = 0 if state is None or state.flushed_end is None else state.flushed_end.end_offset
    end_offset = min(replica.high_watermark, recorded)
    facts = LogFacts(
        segment_facts(log, bounds.mcco, with_ages=False),
        log.start_offset,
        bounds.mcco,
        end_offset,
        min(replica.last_stable_offset, end_offset),
        bounds.mtro,
        bounds.mxro,
        HeldBack(),
    )
    return make_plan(facts, EAGER, now_ms)
