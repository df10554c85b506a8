"""SIGTERM: a node ends soon, whatever the others do meanwhile."""

from __future__ import annotations

from broker.replication.replica import Replica
from protocol.records.batch import iter_batches
from protocol.records.builder import NewRecord, build_batch
from tests.broker.world import World, running

#: Virtual seconds: a transfer of leadership, and a few flushes.
SOON_S = 3.0


def _keep_producing(world: World, node_id: int, replica: Replica, pause_s: float) -> None:
    def produce() -> None:
        if replica.is_serving:
            # Too large to be batched for a deferred follower.
            batch = build_batch([NewRecord(None, b"x" * 70_000, 1)])
            replica.append(next(iter_batches(memoryview(batch)))[1], batch)
        world.loop.call_later(pause_s, produce)

    world.processes[node_id].call(produce)


def test_a_follower_ends_while_its_leader_goes_on_sending() -> None:
    """Every range is another flush: who waits for an idle disk while peers are heard waits for ever."""
    with running() as world:
        world.create_topic("foo")
        leader = world.leader("foo")
        follower = 1 + leader % 3
        world.disks[follower].faults.at_once_rate = 0.0
        world.disks[follower].faults.slow_factor = 200.0
        _keep_producing(world, leader, world.replica(leader, "foo"), 0.001)
        world.loop.run_for(0.5)
        before = world.loop.time()
        world.stop(follower)
        assert world.loop.time() - before < SOON_S
        world.start(follower)
        world.wait_ready(follower)
