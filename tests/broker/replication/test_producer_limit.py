"""A node remembers a bounded number of producer ids, and says so when it drops some."""

from __future__ import annotations

import structlog

from broker.replication.producer_limit import CHECK_S
from protocol.errors import ErrorCode
from tests.broker.asking import produce_one
from tests.broker.world import World, running

LIMIT = 32
SETTINGS = {"varve.max.producer.ids": str(LIMIT)}


def _produce(world: World, producer_id: int, sequence: int = 0, partition: int = 0) -> tuple[int, int]:
    answer = produce_one(world, "foo", producer_id, sequence, partition=partition)
    return answer.error_code, answer.base_offset


def _count(world: World, node_id: int) -> int:
    replicas = world.nodes[node_id].replicas.by_key.values()
    return sum(len(replica.producers.entries) for replica in replicas)


def test_ids_of_the_partition_with_the_most_are_dropped() -> None:
    with running(size=1, settings=SETTINGS) as world, structlog.testing.capture_logs() as logged:
        world.create_topic("foo", partitions=2, replication_factor=1)
        good = [_produce(world, producer_id, partition=1) for producer_id in range(5)]
        for producer_id in range(100, 100 + 3 * LIMIT):
            assert _produce(world, producer_id)[0] == ErrorCode.NONE
        world.loop.run_for(CHECK_S + 0.1)
        assert LIMIT - LIMIT // 16 - 1 <= _count(world, 1) <= LIMIT
        [line] = [line for line in logged if "varve.max.producer.ids" in line["event"]]
        assert line["count"] == 3 * LIMIT + 5 and line["limit"] == LIMIT
        # A producer of the other partition is known as before: its retry is recognised.
        assert [_produce(world, producer_id, partition=1) for producer_id in range(5)] == good
        assert _produce(world, 0, sequence=1, partition=1) == (ErrorCode.NONE, 5)
        newest = 100 + 3 * LIMIT - 1
        assert _produce(world, newest)[1] == 3 * LIMIT - 1
        assert _produce(world, 100, sequence=1)[0] == ErrorCode.UNKNOWN_PRODUCER_ID


def test_a_producer_that_was_dropped_is_told_where_the_log_starts() -> None:
    """A Java producer begins a new epoch then. Without the log start it sends the same batch again and again."""
    with running(size=1, settings=SETTINGS) as world:
        world.create_topic("foo", replication_factor=1)
        for producer_id in range(3 * LIMIT):
            _produce(world, producer_id)
        world.loop.run_for(CHECK_S + 0.1)
        answer = produce_one(world, "foo", 0, 1)
        assert (answer.error_code, answer.log_start_offset) == (ErrorCode.UNKNOWN_PRODUCER_ID, 0)


def test_followers_drop_them_as_well() -> None:
    with running(settings=SETTINGS) as world:
        world.create_topic("foo")
        for producer_id in range(3 * LIMIT):
            _produce(world, producer_id)
        world.wait_equal("foo")
        world.loop.run_for(CHECK_S + 0.1)
        assert all(_count(world, node_id) <= LIMIT for node_id in world.ids)
        old = world.leader("foo")
        world.kill(old)
        assert _produce(world, 0, sequence=1)[0] == ErrorCode.UNKNOWN_PRODUCER_ID
        assert _produce(world, 3 * LIMIT - 1, sequence=1)[0] == ErrorCode.NONE


def test_below_the_limit_nothing_is_dropped() -> None:
    with running(size=1, settings=SETTINGS) as world:
        world.create_topic("foo", replication_factor=1)
        for producer_id in range(LIMIT):
            _produce(world, producer_id)
        world.loop.run_for(5 * CHECK_S)
        assert _count(world, 1) == LIMIT
        _produce(world, 12345, sequence=7)
        assert _produce(world, 12345, sequence=7)[0] == ErrorCode.NONE, "an unknown one may begin anywhere"


def test_what_is_remembered_of_refused_batches_counts_and_goes_first() -> None:
    with running(size=1, settings=SETTINGS) as world:
        world.create_topic("foo", replication_factor=1)
        for producer_id in range(LIMIT - 1):
            _produce(world, producer_id)
        for producer_id in range(100, 102):
            _produce(world, producer_id, sequence=7)
        replica = world.replica(1, "foo")
        assert replica.producer_count == LIMIT + 1
        world.loop.run_for(CHECK_S + 0.1)
        assert replica.producer_count == LIMIT - LIMIT // 16 and len(replica.gaps) == 0
        assert _count(world, 1) == LIMIT - LIMIT // 16, "the two count among those that went"
