"""Requests that a consumer group (KIP-848) refuses because of their epoch, their member or their fields."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from broker.groups.commit import CommitRequest
from broker.groups.consumer_requests import HeartbeatRequest
from protocol.errors import ErrorCode, KafkaError
from tests.broker.groups.consumers import (
    GROUP,
    Consumer,
    Coordinator,
    Topics,
    join_in_turn,
    joining,
    send_heartbeats_until_stable,
)

# -- epochs ------------------------------------------------------------------------------------------------------


def test_a_member_whose_answer_was_lost_may_use_its_old_epoch_once_more(
    coordinator: Coordinator,
) -> None:
    a, b = Consumer(coordinator, "a", "t"), Consumer(coordinator, "b", "t")
    join_in_turn(a, b)
    a.heartbeat()
    a.heartbeat(lose_answer=True)  # It is in epoch 2 now, and does not know.
    assert a.epoch == 1
    answer = a.heartbeat()
    assert answer.member_epoch == 2
    assert answer.assignment is not None, "the lost answer may have held its assignment"


def test_other_epochs_are_fenced(coordinator: Coordinator) -> None:
    a = Consumer(coordinator, "a", "t")
    a.heartbeat()
    for epoch in (2, 9):
        answer = coordinator.ask(HeartbeatRequest(GROUP, "a", epoch))
        assert answer.error == ErrorCode.FENCED_MEMBER_EPOCH
        assert answer.message
    coordinator.pass_time(1)
    b = Consumer(coordinator, "b", "t")
    b.heartbeat()
    send_heartbeats_until_stable(a, b)
    assert a.epoch == 2
    silent = coordinator.ask(HeartbeatRequest(GROUP, "a", 1))
    assert silent.error == ErrorCode.FENCED_MEMBER_EPOCH, "it does not name its partitions"
    topic_id, number = next(iter(b.owned))
    foreign = coordinator.ask(HeartbeatRequest(GROUP, "a", 1, owned={topic_id: frozenset({number})}))
    assert foreign.error == ErrorCode.FENCED_MEMBER_EPOCH, "it names a partition of another member"


def test_a_member_that_joins_again_is_told_its_assignment(coordinator: Coordinator) -> None:
    a = Consumer(coordinator, "a", "t")
    a.heartbeat()
    a.epoch, a.owned = 0, set()
    answer = a.heartbeat()
    assert (answer.member_epoch, len(a.owned)) == (1, 4)


def test_a_full_heartbeat_is_answered_with_the_whole_assignment(coordinator: Coordinator) -> None:
    a = Consumer(coordinator, "a", "t")
    a.heartbeat()
    owned = a._owned_by_topic()
    answer = coordinator.ask(joining(member_epoch=1, owned=owned))
    assert answer.assignment == owned


def test_commits_and_fetches_are_checked_by_member_and_epoch(coordinator: Coordinator) -> None:
    group_checks = [
        ("a", 1, None),
        ("a", 2, ErrorCode.STALE_MEMBER_EPOCH),
        ("x", 1, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", -1, ErrorCode.UNKNOWN_MEMBER_ID),
    ]
    a = Consumer(coordinator, "a", "t")
    a.heartbeat()
    for member_id, epoch, expected in group_checks:
        request = CommitRequest(GROUP, [], member_id, generation=epoch)
        assert refusal(coordinator.group.check_commit, request, 0.0) == expected
        assert refusal(coordinator.group.check_fetch, member_id, epoch) == expected
    assert refusal(coordinator.group.check_fetch, None, -1) is None
    a.leave()
    from_outside, from_a = CommitRequest(GROUP, []), CommitRequest(GROUP, [], "a", generation=1)
    assert refusal(coordinator.group.check_commit, from_outside, 0.0) is None, "into an empty group"
    assert refusal(coordinator.group.check_commit, from_a, 0.0) == ErrorCode.UNKNOWN_MEMBER_ID


# -- invalid requests --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"member_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"member_id": " "}, ErrorCode.INVALID_REQUEST),
        ({"group_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"instance_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"rack_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"rebalance_timeout_ms": -1}, ErrorCode.INVALID_REQUEST),
        ({"owned": None}, ErrorCode.INVALID_REQUEST),
        ({"owned": {Topics().set("t", 1): frozenset({0})}}, ErrorCode.INVALID_REQUEST),
        ({"topic_names": None}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": -2}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": -3}, ErrorCode.INVALID_REQUEST),
        ({"member_id": "x" * 1001}, ErrorCode.INVALID_REQUEST),
        ({"member_id": "ü" * 501}, ErrorCode.INVALID_REQUEST),
        ({"group_id": "x" * 1001}, ErrorCode.INVALID_REQUEST),
        ({"topic_names": ("x" * 250,)}, ErrorCode.INVALID_REQUEST),
        ({"topic_names": tuple(map(str, range(10_001)))}, ErrorCode.INVALID_REQUEST),
        ({"server_assignor": "sticky"}, ErrorCode.UNSUPPORTED_ASSIGNOR),
        ({"topic_names": None, "topic_regex": "a("}, ErrorCode.INVALID_REGULAR_EXPRESSION),
        ({"member_epoch": 3}, ErrorCode.GROUP_ID_NOT_FOUND),
        ({"member_epoch": -1}, ErrorCode.GROUP_ID_NOT_FOUND),
    ],
)
def test_a_refused_request_changes_nothing(
    coordinator: Coordinator, changes: dict[str, object], error: ErrorCode
) -> None:
    answer = coordinator.ask(joining(**changes))
    assert (answer.error, answer.member_id, answer.assignment) == (error, None, None)
    assert answer.message
    assert not coordinator.log
    assert not coordinator.shard.groups


def refusal(check: Callable[..., object], *arguments: object) -> ErrorCode | None:
    try:
        check(*arguments)
    except KafkaError as error:
        return error.code
    return None
