"""What a pass is told of its replica."""

from __future__ import annotations

from broker.compaction.facts import cleaning_task, log_facts, settings_of
from protocol.records.batch import parse_header
from protocol.records.builder import NewRecord, build_batch
from storage.compaction.held_back import HeldBack
from storage.compaction.plan import make_plan
from storage.producer_state import BATCHES_KEPT
from tests.broker.world import World, running


def _write(world: World, node_id: int, sequence: int) -> int:
    """One batch of an idempotent producer. Returns the end offset."""
    records = [NewRecord(b"k", b"v", world.nodes[node_id].clock.now_ms())]
    batch = build_batch(records, producer_id=7, producer_epoch=0, base_sequence=sequence)
    replica = world.replica(node_id, "foo")
    _, end_offset = world.processes[node_id].call(replica.append, parse_header(batch), batch)
    return int(end_offset)


def test_what_is_not_committed_pushes_no_committed_batch_out_of_what_stays() -> None:
    """Seed 605280945286: a leader that nobody heard took three batches of a producer and compacted its log. Then they
    were cut off, and three of the five that it had to remember were gone."""
    with running() as world:
        world.create_topic("foo", configs={"cleanup.policy": "compact"})
        leader = world.leader("foo")
        replica = world.replica(leader, "foo")
        for sequence in range(BATCHES_KEPT):
            committed = _write(world, leader, sequence)
            world.wait(lambda end=committed: replica.high_watermark == end)  # type: ignore[misc]
        world.processes[leader].call(replica.log.roll)
        world.processes[leader].call(lambda: replica.prepare_compaction(is_internal=False))
        for node_id in set(world.ids) - {leader}:
            world.loop.pause(world.processes[node_id])
        for sequence in range(BATCHES_KEPT, BATCHES_KEPT + 3):
            _write(world, leader, sequence)
        facts = log_facts(replica, committed, HeldBack())
        plan = make_plan(facts, settings_of(replica.config), world.nodes[leader].clock.now_ms())
        assert plan.first_uncleanable_offset == committed
        task = cleaning_task(replica, plan, [], now_ms=0, producer_id_expiration_ms=1, map_bytes=1)
        assert set(range(BATCHES_KEPT)) == task.rules.producers_last_offsets
        for node_id in set(world.ids) - {leader}:
            world.loop.resume(world.processes[node_id])
