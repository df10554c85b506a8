"""The largest consumer group (KIP-848), and the largest decision about it."""

from __future__ import annotations

import pytest

from broker.coordinator.name_pattern import NamePattern
from broker.groups import consumer_draft, consumer_subscriptions
from protocol.errors import ErrorCode
from tests.broker.groups.consumers import Consumer, Coordinator, Topics, send_heartbeats_until_stable


def test_many_silent_members_are_removed_in_several_decisions(
    coordinator: Coordinator,
) -> None:
    for number in range(250):
        Consumer(coordinator, f"{number:03}", "t").heartbeat()
    coordinator.fail_over()  # All sessions end at the same moment.
    coordinator.now = coordinator.shard.next_deadline() or 0
    left = []
    while not coordinator.group.is_empty:
        coordinator.expire()
        left.append(len(coordinator.group.members))
    assert left == [150, 50, 0]


def test_a_full_group_refuses_new_members(topics: Topics) -> None:
    coordinator = Coordinator(topics, group_consumer_max_size=1)
    a = Consumer(coordinator, "a", "t")
    a.heartbeat()
    assert Consumer(coordinator, "b", "t").heartbeat().error == ErrorCode.GROUP_MAX_SIZE_REACHED
    a.epoch, a.owned = 0, set()
    assert a.heartbeat().error == ErrorCode.NONE, "it is a member already"


def test_a_group_refuses_members_whose_target_would_not_fit_into_a_batch(
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer_draft, "MAX_TARGET_IDS_BYTES", 3000)
    a, b = (Consumer(coordinator, each * 1000, "t", instance_id=each) for each in "ab")
    for member in (a, b):
        assert member.heartbeat().error == ErrorCode.NONE
    records = len(coordinator.log)
    assert Consumer(coordinator, "c" * 1000, "t").heartbeat().error == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert len(coordinator.log) == records
    a.epoch, a.owned = 0, set()
    assert a.heartbeat().error == ErrorCode.NONE, "it is a member already"
    b.leave(-2)
    assert Consumer(coordinator, "B" * 1000, "t", instance_id="b").heartbeat().error == ErrorCode.NONE, (
        "it takes the place of another member"
    )


def test_expressions_are_matched_in_slices_and_never_in_a_heartbeat(
    topics: Topics, coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a fail-over, thirty expressions once held the loop for eight seconds."""
    spent: list[int] = []
    matches = NamePattern.matches

    def counted(pattern: NamePattern, name: str) -> bool:
        spent[-1] += pattern.cost_us(name)
        return matches(pattern, name)

    monkeypatch.setattr(NamePattern, "matches", counted)
    monkeypatch.setattr(consumer_subscriptions, "COMPILE_US", 0)
    monkeypatch.setattr(consumer_subscriptions, "MAX_WORK_US", 200)
    for number in range(20):
        topics.set(f"log-{number * 7919 % 97:02}-{'x' * 20}", 1)
    consumers = [Consumer(coordinator, f"m{number}", regex=f"(?:.?){{40}}|{number}") for number in range(5)]
    for _ in range(2):
        spent.append(0)
        for consumer in consumers:
            assert consumer.heartbeat().error == ErrorCode.NONE
        assert spent.pop() == 0, "nothing is matched in heartbeats"
        while (deadline := coordinator.group._schedule.matching_due_at) is not None:
            coordinator.now = deadline
            spent.append(0)
            coordinator.expire()
        send_heartbeats_until_stable(*consumers)
        assert sum(len(consumer.owned) for consumer in consumers) == 24
        coordinator.fail_over()
    assert len(spent) > 10
    assert max(spent) < 300, "at most one name more than the limit"


def test_topics_of_expressions_are_written_in_several_decisions(
    topics: Topics, coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A decision must fit into one batch."""
    monkeypatch.setattr(consumer_subscriptions, "MAX_CHANGED_BYTES", 1000)
    for number in range(10):
        topics.set(f"{number}-" + "x" * 100, 1)
    consumers = [Consumer(coordinator, f"m{number}", regex=f".*|{number}") for number in range(5)]
    for consumer in consumers:
        consumer.heartbeat()
    while coordinator.group._schedule.matching_due_at is not None:
        coordinator.now = coordinator.group._schedule.matching_due_at
        records = len(coordinator.log)
        coordinator.expire()
        assert len(coordinator.log) <= records + 2, "one expression, and the group's epoch"
    send_heartbeats_until_stable(*consumers)
    assert sum(len(consumer.owned) for consumer in consumers) == 14


def test_an_expression_that_takes_too_much_work_keeps_its_topics(
    topics: Topics, coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = Consumer(coordinator, "a", regex="t|(?:.?){40}"), Consumer(coordinator, "b", regex="u.*")
    a.heartbeat()
    b.heartbeat()
    coordinator.pass_time(1)
    send_heartbeats_until_stable(a, b)
    assert len(a.owned) == 4
    monkeypatch.setattr(consumer_subscriptions, "MAX_PATTERN_WORK_US", 20)
    topics.set("u-" + "".join(map(chr, range(97, 123))), 3)
    send_heartbeats_until_stable(a, b)
    assert (len(a.owned), len(b.owned)) == (4, 3), "the other expression is matched"
