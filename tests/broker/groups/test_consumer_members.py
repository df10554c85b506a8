"""Members of consumer groups (KIP-848) join, leave and come back, and partitions move accordingly."""

from __future__ import annotations

from broker.groups.consumer_requests import HeartbeatRequest
from protocol.codec import at_once
from protocol.errors import ErrorCode
from tests.broker.groups.consumers import (
    GROUP,
    Consumer,
    Coordinator,
    Topics,
    join_in_turn,
    partitions_of,
    send_heartbeats_until_stable,
)
from tests.broker.groups.tickets import new_ticket

# -- members come and go -----------------------------------------------------------------------------------------


def test_the_first_member_gets_everything_at_once(coordinator: Coordinator) -> None:
    a = Consumer(coordinator, "a", "t")
    answer = a.heartbeat()
    assert (answer.error, answer.member_id, answer.member_epoch) == (ErrorCode.NONE, "a", 1)
    assert answer.heartbeat_interval_ms == 5000
    assert len(a.owned) == 4
    assert coordinator.describe().state == "Stable"
    records = len(coordinator.log)
    assert a.heartbeat().assignment is None, "the assignment is told once"
    assert len(coordinator.log) == records, "a heartbeat without news writes nothing"


def test_the_second_member_gets_partitions_that_the_first_has_given_up(coordinator: Coordinator) -> None:
    a, b = Consumer(coordinator, "a", "t"), Consumer(coordinator, "b", "t")
    a.heartbeat()
    coordinator.pass_time(1)
    answer = b.heartbeat()
    assert answer.assignment == {}, "nothing is free yet"
    assert answer.heartbeat_interval_ms == 500, "it is asked to come back soon"
    assert (b.epoch, coordinator.describe().state) == (2, "Reconciling")
    answer = a.heartbeat()
    assert answer.member_epoch == 1, "it has to give up two partitions, and stays in its epoch until then"
    assert answer.assignment is not None
    assert len(partitions_of(answer.assignment)) == 2
    b.heartbeat()
    assert not b.owned, "a has not said yet that it gave them up"
    assert a.heartbeat().member_epoch == 2
    assert b.heartbeat().heartbeat_interval_ms == 5000
    assert (len(a.owned), len(b.owned)) == (2, 2)
    assert coordinator.describe().state == "Stable"


def test_members_whose_partitions_stay_only_get_a_new_epoch(coordinator: Coordinator) -> None:
    """A third member gets a partition of one of two members."""
    a, b, c = (Consumer(coordinator, each, "t") for each in "abc")
    join_in_turn(a, b)
    send_heartbeats_until_stable(a, b)
    kept = {each.member_id: set(each.owned) for each in (a, b)}
    coordinator.pass_time(1)
    c.heartbeat()
    answers = {each.member_id: each.heartbeat() for each in (a, b)}
    assert sorted(answer.assignment is None for answer in answers.values()) == [False, True]
    (untouched,) = (each for each in (a, b) if answers[each.member_id].assignment is None)
    assert untouched.epoch == 3
    assert untouched.owned == kept[untouched.member_id]
    send_heartbeats_until_stable(a, b, c)
    assert sorted(len(each.owned) for each in (a, b, c)) == [1, 1, 2]


def test_partitions_of_a_member_that_left_are_assigned_in_the_next_heartbeats(
    coordinator: Coordinator,
) -> None:
    a, b = Consumer(coordinator, "a", "t"), Consumer(coordinator, "b", "t")
    join_in_turn(a, b)
    send_heartbeats_until_stable(a, b)
    answer = b.leave()
    assert (answer.error, answer.member_id, answer.member_epoch) == (ErrorCode.NONE, "b", -1)
    assert coordinator.describe().state == "Assigning"
    coordinator.pass_time(1)
    a.heartbeat()
    assert len(a.owned) == 4
    assert a.leave().error == ErrorCode.NONE
    assert coordinator.describe().state == "Empty"
    assert coordinator.shard.next_deadline() is None


def test_many_members_that_join_together_cost_one_assignment(topics: Topics) -> None:
    topics.set("t", 200)
    coordinator = Coordinator(topics)
    consumers = [Consumer(coordinator, f"m{number}", "t") for number in range(50)]
    for consumer in consumers:
        consumer.heartbeat()
    assert coordinator.describe().assignment_epoch == 1
    coordinator.pass_time(1)
    described = coordinator.describe()
    assert described.assignment_epoch == described.epoch == 50
    send_heartbeats_until_stable(*consumers)
    assert {len(consumer.owned) for consumer in consumers} == {4}


def test_a_silent_member_is_removed(coordinator: Coordinator) -> None:
    a, b = Consumer(coordinator, "a", "t"), Consumer(coordinator, "b", "t")
    join_in_turn(a, b)
    send_heartbeats_until_stable(a, b)
    for _ in range(10):
        coordinator.pass_time(4.9)
        a.heartbeat()
    assert list(coordinator.group.members) == ["a"]
    assert len(a.owned) == 4
    assert b.heartbeat().error == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_keeps_revoked_partitions_is_removed(coordinator: Coordinator) -> None:
    a, b = Consumer(coordinator, "a", "t", rebalance_timeout_ms=10_000), Consumer(coordinator, "b", "t")
    a.heartbeat()
    a.is_slow = True
    coordinator.pass_time(1)
    for _ in range(3):
        b.heartbeat()
        a.heartbeat()
        coordinator.pass_time(4)
    b.heartbeat()
    assert list(coordinator.group.members) == ["b"]
    assert len(b.owned) == 4
    assert a.heartbeat().error == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_second_revocation_has_a_deadline_of_its_own(topics: Topics, coordinator: Coordinator) -> None:
    topics.set("t", 6)
    a, b = Consumer(coordinator, "a", "t", rebalance_timeout_ms=10_000), Consumer(coordinator, "b", "t")
    join_in_turn(a, b)
    a.heartbeat()  # it is to give up two, and does
    coordinator.pass_time(9)
    c = Consumer(coordinator, "c", "t")
    c.heartbeat()
    assert a.has_revoked
    assert a.heartbeat().member_epoch == 1, "now it has to give up another one"
    coordinator.pass_time(9)
    assert a.heartbeat().error == ErrorCode.NONE
    send_heartbeats_until_stable(a, b, c)


def test_settings_of_a_group_take_effect_in_the_next_heartbeat(
    topics: Topics, coordinator: Coordinator
) -> None:
    a = Consumer(coordinator, "a", "t")
    assert a.heartbeat().heartbeat_interval_ms == 5000
    topics.configure_group(consumer_heartbeat_interval_ms=1000, consumer_session_timeout_ms=3000)
    assert a.heartbeat().heartbeat_interval_ms == 1000
    coordinator.pass_time(2.9)
    assert not coordinator.group.is_empty
    coordinator.pass_time(0.2)
    assert coordinator.group.is_empty


# -- static members ----------------------------------------------------------------------------------------------


def test_a_static_member_that_is_back_has_its_partitions(coordinator: Coordinator) -> None:
    a, b = Consumer(coordinator, "a", "t", instance_id="i"), Consumer(coordinator, "b", "t")
    join_in_turn(a, b)
    send_heartbeats_until_stable(a, b)
    owned = set(a.owned)
    epoch = coordinator.describe().epoch
    assert a.leave(-2).member_epoch == -2
    b.heartbeat()
    assert len(b.owned) == 2, "its partitions wait for it"
    assert coordinator.ask(HeartbeatRequest(GROUP, "a", 2, "i")).error == ErrorCode.FENCED_MEMBER_EPOCH
    back = Consumer(coordinator, "a2", "t", instance_id="i")
    back.heartbeat()
    assert (back.owned, back.epoch, coordinator.describe().epoch) == (owned, epoch, epoch)
    assert set(coordinator.group.members) == {"a2", "b"}
    assert coordinator.ask(HeartbeatRequest(GROUP, "a", 2, "i")).error == ErrorCode.FENCED_INSTANCE_ID
    coordinator.fail_over()
    assert back.heartbeat().error == ErrorCode.NONE


def test_a_static_member_that_stays_away_is_removed(coordinator: Coordinator) -> None:
    a = Consumer(coordinator, "a", "t", instance_id="i")
    a.heartbeat()
    a.leave(-2)
    coordinator.pass_time(44)
    assert len(coordinator.group.members) == 1
    coordinator.pass_time(2)
    assert coordinator.group.is_empty


def test_an_instance_id_belongs_to_one_member_at_a_time(coordinator: Coordinator) -> None:
    Consumer(coordinator, "a", "t", instance_id="i").heartbeat()
    b = Consumer(coordinator, "b", "t", instance_id="i")
    assert b.heartbeat().error == ErrorCode.UNRELEASED_INSTANCE_ID
    assert b.leave(-2).error == ErrorCode.FENCED_INSTANCE_ID
    assert coordinator.ask(HeartbeatRequest(GROUP, "b", 1, "i")).error == ErrorCode.FENCED_INSTANCE_ID
    assert coordinator.ask(HeartbeatRequest(GROUP, "b", 1, "j")).error == ErrorCode.UNKNOWN_MEMBER_ID
    assert coordinator.ask(HeartbeatRequest(GROUP, "a", -1, "i")).error == ErrorCode.NONE
    assert b.heartbeat().error == ErrorCode.NONE


# -- the log -----------------------------------------------------------------------------------------------------


def test_the_next_coordinator_continues_a_rebalance(coordinator: Coordinator) -> None:
    """In the middle of a rebalance: one member has to give up partitions, and another one waits for them."""
    a, b = Consumer(coordinator, "a", "t"), Consumer(coordinator, "b", "t")
    a.heartbeat()
    a.is_slow = True
    coordinator.pass_time(1)
    b.heartbeat()
    a.heartbeat()
    before = coordinator.describe()
    coordinator.fail_over()
    after = coordinator.describe()
    assert {each.member_id: each for each in after.members} == {
        each.member_id: each for each in before.members
    }
    assert (after.state, after.epoch, after.assignment_epoch) == (
        "Reconciling",
        before.epoch,
        before.assignment_epoch,
    )
    a.heartbeat()
    b.heartbeat()
    assert not b.owned
    a.is_slow = False
    a._take(a.heartbeat())
    a.has_revoked, a.owned = True, set(a.wanted)
    send_heartbeats_until_stable(a, b)
    assert (len(a.owned), len(b.owned)) == (2, 2)


def test_members_have_their_whole_session_after_a_fail_over(coordinator: Coordinator) -> None:
    a = Consumer(coordinator, "a", "t")
    a.heartbeat()
    coordinator.pass_time(40)
    coordinator.fail_over()
    coordinator.pass_time(46)
    assert a.heartbeat().error == ErrorCode.NONE, "the stale coordinator may have answered for 2 s more"
    coordinator.fail_over()
    coordinator.pass_time(48)
    assert a.heartbeat().error == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_deleted_group_leaves_nothing(coordinator: Coordinator) -> None:
    a = Consumer(coordinator, "a", regex="t")
    a.heartbeat()
    a.leave()
    coordinator._carry_out(at_once(coordinator.shard.delete_group(new_ticket(), GROUP)))
    assert not coordinator.shard.groups
    coordinator.fail_over()
    assert not coordinator.shard.groups
