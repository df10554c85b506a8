"""Rules of classic groups that the table of states does not show."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from broker.groups.classic_rebalance import NEW_MEMBER_TIMEOUT_S
from broker.groups.classic_states import ClassicState
from broker.groups.classic_subscription import subscribed_topics
from broker.groups.records import encode
from protocol.codec import at_once
from protocol.errors import ErrorCode
from tests.broker.groups.classic_driver import RANGE, REBALANCE_S, SESSION_S, STALE_LEADER_S, Driver

EMPTY, PREPARING, COMPLETING, STABLE = ClassicState


def subscription(*topics: str) -> bytes:
    names = [topic.encode() for topic in topics]
    return (
        struct.pack(">hi", 3, len(names)) + b"".join(struct.pack(">h", len(x)) + x for x in names) + b"rest"
    )


# -- the first rebalance ---------------------------------------------------------------------------------------


def test_the_first_rebalance_is_delayed_while_members_come() -> None:
    driver = Driver()
    first = driver.join_new()
    driver.pass_time(2.9)
    second = driver.join_new()
    driver.pass_time(0.2)
    assert {first, second} <= driver.open, "somebody came: three seconds more"
    driver.pass_time(3.0)
    assert [driver.answers[x].generation_id for x in (first, second)] == [1, 1]


def test_the_first_rebalance_is_delayed_for_a_rebalance_timeout_at_most() -> None:
    driver = Driver()
    tickets = [driver.join_new(rebalance_s=7.0)]
    for _ in range(5):
        driver.pass_time(2.0)
        tickets.append(driver.join_new(rebalance_s=7.0))
    answers = [driver.answers.get(ticket) for ticket in tickets]
    assert [None if x is None else x.generation_id for x in answers] == [1, 1, 1, 1, None, None]


def test_the_first_rebalance_does_not_wait_for_pending_ids() -> None:
    driver = Driver()
    driver.join()  # an id, given out and not used
    first = driver.join_new()
    driver.pass_time(3.0)
    assert driver.answers[first].generation_id == 1


def test_later_rebalances_wait_for_pending_ids() -> None:
    driver = Driver()
    (leader,) = driver.stable(None)
    driver.join()
    again = driver.join(leader)
    assert again in driver.open
    driver.pass_time(SESSION_S)
    assert driver.answers[again].generation_id == 2, "nobody used the id for a session timeout"


# -- who is waited for -----------------------------------------------------------------------------------------


def test_a_silent_static_member_stays_in_the_group_until_its_session_ends() -> None:
    driver = Driver()
    leader, _ = driver.stable(None, "s")
    again = driver.join(leader)
    driver.pass_time(SESSION_S - 1)
    assert again in driver.open
    driver.pass_time(1)
    assert [x.instance_id for x in driver.answers[again].members] == [None]


def test_a_living_static_member_is_in_the_generation_without_joining() -> None:
    driver = Driver()
    leader, static = driver.stable(None, "s")
    again = driver.join(leader)
    while again in driver.open:
        driver.pass_time(SESSION_S / 2)
        assert driver.heartbeat(static) is not None
    assert sorted(x.instance_id or "" for x in driver.answers[again].members) == ["", "s"]


def test_a_rebalance_that_nobody_joins_lasts_while_static_members_live() -> None:
    driver = Driver()
    dynamic, static = driver.stable(None, "s")
    driver.leave(dynamic)
    for _ in range(int(2 * REBALANCE_S / SESSION_S * 2)):
        driver.pass_time(SESSION_S / 2)
        driver.heartbeat(static)
        deadline = driver.group.next_deadline()
        assert deadline is not None and deadline > driver.now, "a timer that cannot change anything"
    assert driver.group.state is PREPARING
    assert driver.answers[driver.join(static)].generation_id == 2


def test_a_new_member_whose_join_is_parked_is_removed_after_five_minutes() -> None:
    driver = Driver()
    (old,) = driver.stable(None)
    driver.join(old, rebalance_s=3600.0, protocols=(*RANGE, ("other", b"")))
    driver.sync(old, {old: b""})
    parked = driver.join_new()
    for _ in range(int(NEW_MEMBER_TIMEOUT_S / SESSION_S * 2)):
        assert parked in driver.open
        driver.pass_time(SESSION_S / 2)
        driver.heartbeat(old)
    assert driver.answers[parked].error == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_repeated_request_has_the_first_one_answered() -> None:
    driver = Driver()
    leader, follower = driver.stable(None, None)
    first = driver.join(leader)
    second = driver.join(leader)
    assert driver.answers[first].error == ErrorCode.REBALANCE_IN_PROGRESS
    driver.join(follower)
    assert driver.answers[second].error == ErrorCode.NONE
    first = driver.sync(follower)
    second = driver.sync(follower)
    assert driver.answers[first].error == ErrorCode.REBALANCE_IN_PROGRESS
    driver.sync(leader, {follower: b"F"})
    assert driver.answers[second].assignment == b"F"


def test_another_member_leads_if_the_leader_does_not_join() -> None:
    driver = Driver()
    leader, *others = driver.stable(None, None, None)
    driver.leave(leader)
    tickets = [driver.join(member_id) for member_id in others]
    assert {driver.answers[ticket].leader for ticket in tickets} == {others[0]}
    assert [len(driver.answers[ticket].members) for ticket in tickets] == [2, 0]


def test_a_pending_id_cannot_be_used_by_a_static_member() -> None:
    driver = Driver()
    driver.stable(None, "s")
    given = driver.answers[driver.join()].member_id
    assert driver.answers[driver.join(given, instance="s")].error == ErrorCode.FENCED_INSTANCE_ID
    assert driver.answers[driver.join(given, instance="t")].error == ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.group.state is STABLE


# -- the protocol ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("preferences", "chosen"),
    [
        (["ab", "ab"], "a"),
        (["ab", "ba", "ba"], "b"),
        (["ab", "b"], "b"),
        (["abc", "cb", "bc"], "b"),
        (["ab", "ba"], "a"),
    ],
)
def test_the_protocol_is_one_that_all_members_support_and_most_prefer(
    preferences: list[str], chosen: str
) -> None:
    driver = Driver()
    for preference in preferences:
        driver.join_new(protocols=tuple((name, b"") for name in preference))
    driver.pass_time(6.0)
    assert driver.group.protocol == chosen


# -- limits ----------------------------------------------------------------------------------------------------


def test_a_full_group_refuses_new_members() -> None:
    driver = Driver(max_members=2)
    leader, _ = driver.stable(None, "s")
    assert driver.answers[driver.join(version=3)].error == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert driver.answers[driver.join()].error == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert driver.answers[driver.join(instance="t")].error == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert driver.answers[driver.join(instance="s")].error == ErrorCode.NONE
    assert driver.join(leader) in driver.open


def test_an_assignment_that_no_record_can_hold_is_refused() -> None:
    driver = Driver()
    leader, follower = driver.completing(None, None)
    parked = driver.sync(follower)
    sync = driver.sync(leader, {follower: bytes(driver.limits.max_record_bytes)})
    assert [driver.answers[x].error for x in (parked, sync)] == [ErrorCode.UNKNOWN_SERVER_ERROR] * 2
    assert (driver.group.state, driver.log) == (PREPARING, [])


# -- the log ---------------------------------------------------------------------------------------------------


def test_the_next_coordinator_knows_the_new_id_of_a_static_member() -> None:
    driver = Driver()
    _, former = driver.stable(None, "s")
    present = driver.answers[driver.join(instance="s")].member_id
    driver.fail_over()
    assert driver.answers[driver.heartbeat(former, instance="s")].error == ErrorCode.FENCED_INSTANCE_ID
    assert driver.answers[driver.heartbeat(present, instance="s")].error == ErrorCode.NONE
    assert driver.answers[driver.sync(present, instance="s")].assignment == former.encode()


@pytest.mark.parametrize("is_alone", [False, True])
def test_the_next_coordinator_knows_a_static_member_that_is_back_while_the_group_rebalances(
    is_alone: bool,
) -> None:
    """Otherwise it would fence the member, whose new id the former coordinator has told it."""
    driver = Driver()
    if is_alone:
        (former,) = driver.stable("s")
        ticket = driver.join(instance="s", protocols=(("roundrobin", b"other"), *RANGE))
    else:
        leader, former, third = driver.stable(None, "s", None)
        driver.join(leader)
        driver.join(third)
        ticket = driver.join(instance="s")
    present = driver.answers[ticket].member_id
    assert driver.group.state is COMPLETING
    driver.fail_over()
    assert (driver.group.state, driver.group.generation_id) == (STABLE, 1)
    assert driver.answers[driver.heartbeat(former, instance="s")].error == ErrorCode.FENCED_INSTANCE_ID
    lost = driver.answers[driver.sync(present, instance="s", generation=2)].error
    assert lost == ErrorCode.ILLEGAL_GENERATION
    again = driver.join(present, instance="s", protocols=(("roundrobin", b"again"), *RANGE))
    assert again in driver.open or driver.answers[again].error == ErrorCode.NONE


def test_the_next_coordinator_does_not_know_a_generation_without_an_assignment() -> None:
    driver = Driver()
    leader, follower = driver.stable(None, None)
    driver.join(leader)
    driver.join(follower)
    assert (driver.group.state, driver.group.generation_id) == (COMPLETING, 2)
    driver.fail_over()
    assert (driver.group.state, driver.group.generation_id) == (STABLE, 1)
    assert driver.answers[driver.sync(leader, generation=2)].error == ErrorCode.ILLEGAL_GENERATION
    joins = [driver.join(leader), driver.join(follower)]
    assert [driver.answers[x].generation_id for x in joins] == [2, 2]


def test_every_member_has_a_whole_session_after_loading() -> None:
    driver = Driver()
    driver.stable(None, None)
    driver.pass_time(SESSION_S - 1)
    driver.fail_over()
    driver.pass_time(STALE_LEADER_S + SESSION_S - 1)
    assert len(driver.group.members) == 2
    driver.pass_time(1)
    assert driver.group.state is EMPTY


# -- offsets ---------------------------------------------------------------------------------------------------


def test_offsets_of_subscribed_topics_are_kept() -> None:
    driver = Driver()
    tickets = [driver.join_new(protocols=(("range", subscription(topic)),)) for topic in ("foo", "bar")]
    driver.pass_time(6)
    group = driver.group
    assert at_once(group.subscribed_among({"foo", "bar", "other"})) == {"foo", "bar"}
    assert group.expires_from_ms(5) is None, "there is no assignment yet"
    for ticket in tickets:
        driver.sync(driver.answers[ticket].member_id)
    assert group.expires_from_ms(5) == 5
    driver.join(driver.answers[tickets[0]].member_id)
    assert at_once(group.subscribed_among({"other"})), "subscriptions are not known while members join"
    driver.leave(*(driver.answers[ticket].member_id for ticket in tickets))
    assert not at_once(group.subscribed_among({"foo"}))
    assert group.expires_from_ms(5) == driver.now_ms, "since it has no members"
    assert group.expires_from_ms(driver.now_ms + 9) == driver.now_ms + 9


@pytest.mark.parametrize(
    "metadata", [b"", b"\0\3\0\0\0\1", b"\0\3\0\0\0\1\0\5abc", b"\0\3\0\0\0\1\0\1\xff", b"r"]
)
def test_metadata_that_is_no_subscription_protects_every_topic(metadata: bytes) -> None:
    assert subscribed_topics(metadata) is None
    driver = Driver()
    driver.join_new(protocols=(("range", metadata),))
    driver.pass_time(3.0)
    assert at_once(driver.group.subscribed_among({"foo"}))


def test_a_huge_topic_count_in_metadata_costs_nothing() -> None:
    assert subscribed_topics(struct.pack(">hi", 3, 2**31 - 1)) is None
    assert subscribed_topics(struct.pack(">hi", 3, -1)) == frozenset()


def test_a_group_is_assigned_if_a_record_can_hold_it() -> None:
    """It was once refused, because four bytes were counted for each character."""
    driver = Driver(initial_delay_s=0.05)
    client_id = "orders-3f2b9c1e-0d7a-4b55-9a1e-5c0f6d2e8b11-StreamThread-1-consumer"
    how: dict[str, Any] = {"protocols": (("range", b"m" * 200),), "version": 3, "client_id": client_id}
    tickets = [driver.join(**how) for _ in range(1000)]
    driver.pass_time(0.2)
    assignments = {driver.answers[ticket].member_id: b"a" * 100 for ticket in tickets}
    ticket = driver.sync(driver.group.leader or "", assignments)
    assert driver.answers[ticket].error == ErrorCode.NONE
    key, value = encode(driver.log[-1])
    assert value is not None and 400_000 < len(key) + len(value) < driver.limits.max_record_bytes
