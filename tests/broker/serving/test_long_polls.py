"""Fetches that wait for records keep a bounded number of partitions."""

from __future__ import annotations

import asyncio

from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from tests.broker.asking import begin_ask, connect
from tests.broker.world import World, running
from tests.simulator.client import Connection

MAX_PARTITIONS = 100
SETTINGS = {"varve.max.fetch.partitions": str(MAX_PARTITIONS)}


def _body(partitions: int, max_wait_ms: int, session_epoch: int = -1) -> FetchRequest:
    """A fetch at the end of an empty topic."""
    wanted = [
        FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=1 << 20)
        for number in range(partitions)
    ]
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=1 << 20,
        session_epoch=session_epoch,
        topics=[FetchTopic(topic="foo", partitions=wanted)],
    )


def _begin(world: World, partitions: int, max_wait_ms: int = 1500) -> asyncio.Task[FetchResponse]:
    body = _body(partitions, max_wait_ms)
    task = begin_ask(world, 1, ApiKey.FETCH, 7, body, FetchResponse)
    world.loop.run_for(0.01)
    return task


def test_the_largest_fetch_is_answered_early_and_its_client_throttled() -> None:
    with running(size=1, settings=SETTINGS) as world:
        world.create_topic("foo", partitions=60, replication_factor=1)
        for partition in range(60):
            world.leader("foo", partition)
        small, large, next_ = _begin(world, 40), _begin(world, 60), _begin(world, 30)
        world.wait(large.done, limit_s=0.1)
        answer = large.result()
        assert answer.error_code == ErrorCode.NONE and answer.throttle_time_ms == 500
        assert len(answer.responses[0].partitions) == 60
        assert not small.done() and not next_.done()
        # Those that wait are answered at their time, and leave room.
        world.wait(lambda: small.done() and next_.done(), limit_s=2)
        assert small.result().throttle_time_ms == next_.result().throttle_time_ms == 0
        again = _begin(world, 60)
        world.loop.run_for(1)
        assert not again.done()
        world.produce("foo", b"x")
        world.wait(again.done, limit_s=0.1)
        assert again.result().throttle_time_ms == 0


def test_one_that_names_too_many_is_answered_at_once_and_not_read_for_a_while() -> None:
    body = _body(MAX_PARTITIONS + 1, max_wait_ms=300)

    async def ask_twice(connection: Connection) -> list[int]:
        answers = [await connection.request(ApiKey.FETCH, 7, body, FetchResponse) for _ in range(2)]
        return [answer.throttle_time_ms for answer in answers]

    with running(size=1, settings=SETTINGS) as world:
        world.create_topic("foo", partitions=MAX_PARTITIONS + 1, replication_factor=1)
        for partition in range(MAX_PARTITIONS + 1):
            world.leader("foo", partition)
        connecting = world.loop.create_task(connect(world))
        world.wait(connecting.done)
        began_s = world.loop.time()
        task = world.loop.create_task(ask_twice(connecting.result()))
        world.wait(task.done)
        assert task.result() == [300, 300]
        assert 0.3 <= world.loop.time() - began_s < 0.4


def test_fetches_of_lost_clients_leave_room() -> None:
    with running(size=1, settings=SETTINGS) as world:
        world.create_topic("foo", partitions=60, replication_factor=1)
        for partition in range(60):
            world.leader("foo", partition)
        connecting = world.loop.create_task(connect(world))
        world.wait(connecting.done)
        connecting.result().tell(ApiKey.FETCH, 7, _body(60, 1_000_000))
        world.loop.run_for(0.1)
        connecting.result().abort()
        world.loop.run_for(11)  # a long poll looks every ten seconds whether its client is still there
        waits = _begin(world, 60)
        world.loop.run_for(1)
        assert not waits.done()
