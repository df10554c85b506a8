"""Offsets that are committed with a transaction, at work: on the coordinator, its successor and in their logs."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any
from uuid import UUID

import pytest

from broker.coordinator.internal_topic import partition_of
from broker.coordinator.outcome import Outcome
from broker.groups.commit import CommitAnswer, CommitRequest, OffsetToCommit
from broker.groups.records import GroupRecord
from broker.scheduling.background import PAUSE, Steps
from protocol.errors import ErrorCode, KafkaError
from protocol.records.control import Marker
from tests.broker.groups.world import FEW, commit, commit_request, committed, coordinator, pass_time
from tests.broker.world import World, running

TOPIC = "__consumer_offsets"
PRODUCER_ID = 77


def _begin_commit(
    world: World,
    node_id: int,
    offsets: dict[int, int],
    epoch: int = 0,
    topic_id: UUID | None = None,
    group_id: str = "g",
) -> list[CommitAnswer]:
    """The list gets the answer when it comes. `topic_id`: as the handler found it, None: it finds it now."""
    if topic_id is None:
        topic_id = world.topic_id(node_id, "foo")
    wanted = [OffsetToCommit("foo", topic_id, *each) for each in offsets.items()]
    request = CommitRequest(group_id, wanted, producer=(PRODUCER_ID, epoch))
    answers: list[CommitAnswer] = []
    world.processes[node_id].call(
        world.nodes[node_id].coordinators.groups.ask,
        group_id,
        answers.append,
        lambda error: CommitAnswer(error, []),
        lambda shard, ticket, now, now_ms: shard.commit_offsets(ticket, request, now, now_ms),
    )
    return answers


def _commit(world: World, node_id: int, offsets: dict[int, int], epoch: int = 0) -> CommitAnswer:
    answers = _begin_commit(world, node_id, offsets, epoch)
    world.wait(lambda: bool(answers))
    return answers[0]


def _end(world: World, node_id: int, *, is_commit: bool, epoch: int = 0) -> None:
    """Returns when the marker is committed."""
    done: list[int | KafkaError] = []
    replica = world.replica(node_id, TOPIC, partition_of("g", 3))
    append_marker = world.nodes[node_id].coordinators.groups.append_marker
    marker = Marker(is_commit, 0)
    world.processes[node_id].call(append_marker, replica, PRODUCER_ID, epoch, marker, 1, done.append)
    world.wait(lambda: bool(done) and isinstance(done[0], int) and replica.high_watermark >= done[0])


@pytest.mark.parametrize("is_commit", [True, False])
@pytest.mark.parametrize("count", [3, 200])
def test_offsets_count_when_the_transaction_is_committed(count: int, is_commit: bool) -> None:
    with running(settings=FEW) as world:
        world.create_topic("foo", count)
        node_id = coordinator(world, "g")
        answer = _commit(world, node_id, dict.fromkeys(range(count), 7))
        assert answer == CommitAnswer(ErrorCode.NONE, [ErrorCode.NONE] * count)
        assert committed(world, node_id, "g") == {}
        world.kill(node_id)
        node_id = coordinator(world, "g")
        assert committed(world, node_id, "g") == {}, "they are pending there, too"
        _end(world, node_id, is_commit=is_commit)
        expected = {("foo", partition): 7 for partition in range(count)} if is_commit else {}
        assert committed(world, node_id, "g") == expected
        (killed,) = set(world.ids) - set(world.nodes)
        world.start(killed)
        world.wait_ready()
        world.kill(node_id)
        assert committed(world, coordinator(world, "g"), "g") == expected


@pytest.mark.parametrize("is_commit", [True, False])
def test_an_end_that_is_carried_out_late_spares_the_offsets_of_the_next_transaction(
    is_commit: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No time is left in the iteration in which the marker is appended. The next transaction is of another group, which
    need not wait."""
    other = next(f"h{n}" for n in range(100) if partition_of(f"h{n}", 3) == partition_of("g", 3))
    with running(settings=FEW) as world:
        world.create_topic("foo", 60)
        node_id = coordinator(world, "g")
        _commit(world, node_id, dict.fromkeys(range(60), 7))
        background, held = world.nodes[node_id].background, list[Steps]()
        with monkeypatch.context() as patch:
            patch.setattr(background, "run", held.append)
            _end(world, node_id, is_commit=is_commit)
        answers = _begin_commit(world, node_id, {0: 99}, group_id=other)
        world.wait(lambda: bool(answers))
        assert answers[0].error == ErrorCode.NONE and held
        for steps in held:
            world.processes[node_id].call(background.run, steps)
        pass_time(world, 1)
        assert committed(world, node_id, "g") == (
            dict.fromkeys([("foo", n) for n in range(60)], 7) if is_commit else {}
        )
        assert committed(world, node_id, other) == {}
        _end(world, node_id, is_commit=True)
        assert committed(world, node_id, other) == {("foo", 0): 99}


def test_the_commit_of_a_fenced_producer_is_refused() -> None:
    with running(size=1, settings=FEW) as world:
        world.create_topic("foo", 1, replication_factor=1)
        node_id = coordinator(world, "g")
        assert _commit(world, node_id, {0: 1}).error == ErrorCode.NONE
        _end(world, node_id, is_commit=False, epoch=1)
        assert _commit(world, node_id, {0: 2}).error == ErrorCode.INVALID_PRODUCER_EPOCH
        assert committed(world, node_id, "g") == {}


def test_a_stale_coordinator_does_not_say_that_a_transaction_is_still_open() -> None:
    """It lacks the marker that its successor has written; INVALID_TXN_STATE would end the producer."""
    with running(settings=FEW) as world:
        world.create_topic("foo")
        node_id = coordinator(world, "g")
        assert _commit(world, node_id, {0: 1}).error == ErrorCode.NONE
        assert _commit(world, node_id, {0: 2}, epoch=1).error == ErrorCode.INVALID_TXN_STATE
        others = [f"n{other}" for other in world.ids if other != node_id]
        world.network.partition([f"n{node_id}"], others)
        answers = _begin_commit(world, node_id, {0: 2}, epoch=1)
        assert world.replica(node_id, TOPIC, partition_of("g", 3)).is_serving
        world.wait(lambda: bool(answers))
        assert answers[0].error == ErrorCode.NOT_COORDINATOR


# -- topics that are deleted and created again ------------------------------------------------------------------------


def _occupy(world: World, node_id: int) -> Callable[[], None]:
    """A decision about the group takes long. Returns what ends that."""
    held = [True]
    answers: list[CommitAnswer] = []

    def decide(
        shard: Any, ticket: Any, now: float, now_ms: int
    ) -> Generator[Any, None, Outcome[GroupRecord]]:
        while held:
            yield PAUSE
        return Outcome[GroupRecord]().add_answer(ticket, CommitAnswer(ErrorCode.NONE, []))

    world.processes[node_id].call(
        world.nodes[node_id].coordinators.groups.ask,
        "g",
        answers.append,
        lambda error: CommitAnswer(error, []),
        decide,
    )
    return held.clear


@pytest.mark.parametrize("is_commit", [True, False])
def test_deleting_the_offsets_of_a_topic_spares_those_that_are_pending_for_its_successor(
    is_commit: bool,
) -> None:
    """The old ones go when the transaction has ended: nobody shall begin at them in the new topic."""
    with running(size=1, settings=FEW) as world:
        world.create_topic("foo", 1, replication_factor=1)
        node_id = coordinator(world, "g")
        assert commit(world, node_id, commit_request("g", "foo", {0: 5})) == [ErrorCode.NONE]
        release = _occupy(world, node_id)
        world.delete_topic("foo")
        world.create_topic("foo", 1, replication_factor=1)
        answers = _begin_commit(world, node_id, {0: 7})
        release()
        world.wait(lambda: bool(answers))
        assert answers[0].errors == [ErrorCode.NONE]
        pass_time(world, 1)
        _end(world, node_id, is_commit=is_commit)
        pass_time(world, 3)
        assert committed(world, node_id, "g") == ({("foo", 0): 7} if is_commit else {})


def test_an_offset_of_a_topic_that_is_deleted_while_its_commit_waits_is_refused() -> None:
    """It would take the place of an offset of the topic that has the name by now."""
    with running(size=1, settings=FEW) as world:
        world.create_topic("foo", 1, replication_factor=1)
        node_id = coordinator(world, "g")
        old = world.topic_id(node_id, "foo")
        world.delete_topic("foo")
        world.create_topic("foo", 1, replication_factor=1)
        assert commit(world, node_id, commit_request("g", "foo", {0: 7})) == [ErrorCode.NONE]
        answers = _begin_commit(world, node_id, {0: 5}, topic_id=old)
        world.wait(lambda: bool(answers))
        assert answers[0].errors == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        _end(world, node_id, is_commit=True)
        assert committed(world, node_id, "g") == {("foo", 0): 7}
