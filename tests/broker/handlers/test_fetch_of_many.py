"""Fetches that name many partitions are served in steps, and much may happen between two of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from broker.node import Node
from broker.replication.replica import Replica
from broker.serving.fetch_sessions import INITIAL_EPOCH
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from tests.broker.asking import connect
from tests.broker.world import World, running

#: A step takes 50 us in a world, and a piece 1 ms.
MANY = 200
MAX_WAIT_MS = 20_000
NO_SESSION = -1


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with running(size=1) as world:
        world.create_topic("foo", partitions=MANY, replication_factor=1)
        for partition in range(MANY):
            world.leader("foo", partition)
        yield world


@pytest.fixture(autouse=True)
def no_sessions(world: World) -> None:
    """Their partitions are watched, too."""
    _close_sessions(world)
    assert _watchers(world) == 0


def _close_sessions(world: World) -> None:
    sessions = _node(world).context.fetch_sessions
    for session_id in list(sessions._sessions):
        sessions.close(session_id)


def _node(world: World) -> Node:
    return world.nodes[1]


def _is_at_work(world: World) -> bool:
    return _node(world).context.long_requests.count > 0


def _watchers(world: World) -> int:
    return sum(replica.waits.fetch_count for replica in _node(world).replicas.by_name.values())


def _ends(world: World) -> list[int]:
    return [world.replica(1, "foo", partition).high_watermark for partition in range(MANY)]


def _fetch(world: World, offsets: list[int], session_epoch: int) -> asyncio.Task[FetchResponse]:
    return _fetch_some(world, dict(enumerate(offsets)), session_epoch)


def _fetch_some(
    world: World, offsets: dict[int, int], session_epoch: int, session_id: int = 0
) -> asyncio.Task[FetchResponse]:
    connection = world.loop.run_until_complete(connect(world))
    body = FetchRequest(
        max_wait_ms=MAX_WAIT_MS,
        min_bytes=1,
        max_bytes=1 << 20,
        session_id=session_id,
        session_epoch=session_epoch,
        topics=[
            FetchTopic(
                topic="foo",
                partitions=[
                    FetchPartition(partition=number, fetch_offset=offset, partition_max_bytes=1 << 20)
                    for number, offset in offsets.items()
                ],
            )
        ],
    )
    return world.loop.create_task(connection.request(ApiKey.FETCH, 7, body, FetchResponse))


def _with_records(answer: FetchResponse) -> list[int]:
    assert answer.error_code == ErrorCode.NONE
    return [data.partition_index for topic in answer.responses for data in topic.partitions if data.records]


@pytest.mark.parametrize("session_epoch", [NO_SESSION, INITIAL_EPOCH])
def test_all_partitions_are_in_the_answer(world: World, session_epoch: int) -> None:
    before = _ends(world)
    for partition in (0, 77, MANY - 1):
        world.produce("foo", b"x", partition=partition)
    task = _fetch(world, before, session_epoch)
    world.wait(lambda: _is_at_work(world))
    world.wait(task.done, limit_s=1)
    assert _with_records(task.result()) == [0, 77, MANY - 1]
    [topic] = task.result().responses
    assert [data.partition_index for data in topic.partitions] == list(range(MANY))
    assert _watchers(world) == (0 if session_epoch == NO_SESSION else MANY)


def test_a_record_behind_the_scan_is_not_missed(world: World) -> None:
    """The partition was found empty, the scan goes on, and the record is committed meanwhile."""
    task = _fetch(world, _ends(world), NO_SESSION)
    world.wait(lambda: _watchers(world) > 0 and _is_at_work(world))
    sent = world.loop.time()
    world.produce("foo", b"x")
    world.wait(task.done, limit_s=1)
    assert world.loop.time() - sent < MAX_WAIT_MS / 1000
    assert _with_records(task.result()) == [0]


def test_a_long_poll_whose_partitions_all_change_is_answered(world: World) -> None:
    """It is looked through in steps again."""
    task = _fetch(world, _ends(world), NO_SESSION)
    world.wait(lambda: _watchers(world) == MANY and not _is_at_work(world))
    for partition in range(MANY):
        world.processes[1].call(world.replica(1, "foo", partition).waits.wake_fetches)
    world.wait(lambda: _is_at_work(world))
    world.wait(lambda: _watchers(world) == MANY and not _is_at_work(world))
    assert not task.done(), "there is nothing new"
    world.produce("foo", b"x", partition=5)
    world.wait(task.done, limit_s=1)
    assert _with_records(task.result()) == [5]


@pytest.mark.parametrize("session_epoch", [NO_SESSION, INITIAL_EPOCH])
def test_a_client_that_goes_away_in_the_middle_leaves_nothing_behind(
    world: World, session_epoch: int
) -> None:
    sessions = _node(world).context.fetch_sessions
    known = set(_node(world).connections._open)
    task = _fetch(world, _ends(world), session_epoch)
    world.wait(lambda: _watchers(world) > 0 and _is_at_work(world))
    [connection] = set(_node(world).connections._open) - known
    world.processes[1].call(connection.abort)
    world.wait(lambda: not _is_at_work(world))
    task.cancel()
    assert not any(session.is_busy for session in sessions._sessions.values())
    if session_epoch == NO_SESSION:
        assert _watchers(world) == 0


def test_a_client_that_goes_away_before_its_woken_fetch_is_looked_at_leaves_its_session_free(
    world: World,
) -> None:
    """All of its partitions have changed, and in this loop iteration there is no time for it any more."""
    node, process = _node(world), world.processes[1]
    known = set(node.connections._open)
    task = _fetch(world, _ends(world), INITIAL_EPOCH)
    world.wait(lambda: _watchers(world) == MANY and not _is_at_work(world))
    [connection] = set(node.connections._open) - known

    def change_and_leave() -> None:
        budget = node.context.long_requests._budget
        assert not budget.is_spent()
        budget._spent_at_s = 1e-9  # spent
        for partition in range(MANY):
            world.replica(1, "foo", partition).waits.wake_fetches()
        node.turn._send()
        assert _is_at_work(world) and _watchers(world) == 0
        connection.abort()

    process.call(change_and_leave)
    world.wait(lambda: not _is_at_work(world))
    task.cancel()
    assert not any(session.is_busy for session in node.context.fetch_sessions._sessions.values())


def test_a_session_may_be_evicted_in_the_middle(world: World) -> None:
    sessions = _node(world).context.fetch_sessions
    task = _fetch(world, _ends(world), INITIAL_EPOCH)
    world.wait(lambda: any(session.is_busy for session in sessions._sessions.values()))
    assert _is_at_work(world)
    _close_sessions(world)
    world.wait(task.done, limit_s=1)
    assert _with_records(task.result()) == []
    assert _watchers(world) == 0


class _WakesAnother:
    """Waits for a partition, and has another one woken in the same loop iteration."""

    def __init__(self, other: Replica) -> None:
        self._other = other

    def wake(self) -> None:
        self._other.waits.wake_fetches()


def test_a_record_behind_the_last_scan_is_in_the_next_answer_of_the_session(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The partition was found empty once more, together with another one that had enough. The answer has many
    partitions, and is made in steps while the node is busy."""
    before = _ends(world)
    task = _fetch(world, before, INITIAL_EPOCH)
    world.wait(lambda: _watchers(world) == MANY and not _is_at_work(world))
    waiter = _WakesAnother(world.replica(1, "foo", 0))
    world.processes[1].call(world.replica(1, "foo", 1).waits.add_fetch, waiter)
    budget = _node(world).context.long_requests._budget
    with monkeypatch.context() as busy:
        busy.setattr(budget, "is_spent", lambda: True)
        busy.setattr(budget, "_schedule", lambda: None)
        world.produce("foo", b"x", partition=1)
        world.wait(lambda: _is_at_work(world))
        world.produce("foo", b"x", partition=0)
    world.processes[1].call(budget._schedule)
    world.wait(task.done, limit_s=1)
    assert _with_records(task.result()) == [1]
    following = _fetch_some(world, {1: before[1] + 1}, 1, task.result().session_id)
    world.wait(following.done, limit_s=1)
    assert _with_records(following.result()) == [0]
