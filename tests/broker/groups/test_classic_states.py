"""Every cell of the table in broker/groups/classic_states.py."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

import broker.groups.classic_states
from broker.groups.classic_states import ClassicState
from protocol.errors import ErrorCode
from tests.broker.groups.classic_driver import REBALANCE_S, SESSION_S, Driver
from tests.broker.groups.tickets import AnyTicket

EMPTY, PREPARING, COMPLETING, STABLE = ClassicState
ANSWERS = {
    "ok": ErrorCode.NONE,
    "id first": ErrorCode.MEMBER_ID_REQUIRED,
    "unknown": ErrorCode.UNKNOWN_MEMBER_ID,
    "protocol": ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    "rebalancing": ErrorCode.REBALANCE_IN_PROGRESS,
    "generation": ErrorCode.ILLEGAL_GENERATION,
    "fenced": ErrorCode.FENCED_INSTANCE_ID,
    "parked": None,
}
CHANGED = (("range", b"other topics"),)
BOTH = (("roundrobin", b"r"), ("range", b"r"))


@dataclass
class Group:
    """A group in some state, with its driver, and member ids. The last member is static. In state Empty they have
    left."""

    driver: Driver
    leader: str
    follower: str
    others: list[str]

    @property
    def all(self) -> list[str]:
        return [self.leader, self.follower, *self.others]


def _group(state: ClassicState) -> Group:
    driver = Driver()
    if state is EMPTY:
        member_ids = driver.stable(None, None, None, "s")
        driver.leave(*member_ids)
    elif state is COMPLETING:
        member_ids = driver.completing(None, None, None, "s")
    else:
        member_ids = driver.stable(None, None, None, "s")
        if state is PREPARING:
            # The third member has joined again. The leader, the follower and the static member have not.
            driver.join(member_ids[2], protocols=CHANGED)
    assert driver.group.state is state
    return Group(driver, member_ids[0], member_ids[1], member_ids[2:])


def _answer(group: Group, ticket: AnyTicket) -> ErrorCode | None:
    answer = group.driver.answers.get(ticket)
    return None if answer is None else answer.error


def _join(group: Group, member_id: str, **how: object) -> ErrorCode | None:
    return _answer(group, group.driver.join(member_id, **how))  # type: ignore[arg-type]


def _join_last(group: Group) -> ErrorCode | None:
    for member_id in (group.leader, group.follower):
        group.driver.join(member_id)
    return _join(group, "", instance="s")


def _join_pending(group: Group) -> ErrorCode | None:
    return _answer(group, group.driver.join_new())


def _sync(group: Group, member_id: str, **how: object) -> ErrorCode | None:
    return _answer(group, group.driver.sync(member_id, {}, **how))  # type: ignore[arg-type]


def _sync_other(group: Group) -> ErrorCode | None:
    return _sync(group, group.follower, generation=group.driver.group.generation_id - 1)


def _heartbeat_other(group: Group) -> ErrorCode | None:
    generation = group.driver.group.generation_id + 1
    return _answer(group, group.driver.heartbeat(group.follower, generation=generation))


def _heartbeat_fenced(group: Group) -> ErrorCode | None:
    return _answer(group, group.driver.heartbeat("s-that is stale", instance="s"))


def _leave(group: Group, *member_ids: str) -> ErrorCode | None:
    answer = group.driver.answers[group.driver.leave(*member_ids)]
    assert answer.error == ErrorCode.NONE
    return answer.members[0][1]  # type: ignore[no-any-return]


def _commit_of_member(group: Group) -> ErrorCode | None:
    return group.driver.commit(group.follower, group.driver.group.generation_id)


def _one_session_expires(group: Group) -> ErrorCode | None:
    driver = group.driver
    driver.pass_time(SESSION_S / 2)
    for member_id in group.all:
        if member_id != group.follower:
            driver.heartbeat(member_id)
    driver.pass_time(SESSION_S / 2)
    assert group.follower not in driver.group.members
    return ErrorCode.NONE


def _all_sessions_expire(group: Group) -> ErrorCode | None:
    # A member whose JoinGroup is parked does not expire, so it leaves.
    if group.driver.group.state is PREPARING:
        group.driver.leave(group.others[0])
    group.driver.pass_time(SESSION_S)
    return ErrorCode.NONE


def _too_long(group: Group) -> ErrorCode | None:
    """In the join phase the follower does not join. In other states it does not send SyncGroup."""
    driver = group.driver
    if driver.group.state is PREPARING:
        driver.join(group.leader)
    elif driver.group.state is COMPLETING:
        for member_id in group.others:
            driver.sync(member_id)
    else:
        for member_id in group.all:
            driver.join(member_id)
        for member_id in (group.leader, *group.others):
            driver.sync(member_id)
        assert driver.group.state is STABLE
    end = driver.now + REBALANCE_S
    while driver.now < end:
        driver.pass_time(SESSION_S / 2)
        for member_id in group.all:
            driver.heartbeat(member_id)
    assert group.follower not in driver.group.members
    return ErrorCode.NONE


def _vote_changes(group: Group) -> ErrorCode | None:
    """The vote of the static member decides, so its new preference changes the protocol."""
    driver = Driver()
    state = group.driver.group.state
    tickets = [driver.join_new(protocols=BOTH), driver.join_new(instance="s", protocols=BOTH[::-1])]
    driver.pass_time(9)
    member_ids = [driver.answers[ticket].member_id for ticket in tickets]
    assert driver.group.protocol == "roundrobin"
    if state is not COMPLETING:
        for member_id in member_ids:
            driver.sync(member_id)
    if state is PREPARING:
        driver.join_new(protocols=BOTH)
    if state is EMPTY:
        driver.leave(*member_ids)
    assert driver.group.state is state
    group.driver = driver
    return _join(group, "", instance="s", protocols=BOTH[1:])


EVENTS: dict[str, Callable[[Group], ErrorCode | None]] = {
    "join without an id": lambda group: _join(group, ""),
    "join with a pending id": _join_pending,
    "join with an unknown id": lambda group: _join(group, "nobody"),
    "join with another protocol type": lambda group: _join(group, "", protocol_type="connect", version=3),
    "join of a follower, unchanged": lambda group: _join(group, group.follower),
    "join of the leader, unchanged": lambda group: _join(group, group.leader),
    "join of a follower, changed": lambda group: _join(group, group.follower, protocols=CHANGED),
    "join of the last missing member": _join_last,
    "join of a returning static member": lambda group: _join(group, "", instance="s", protocols=CHANGED),
    "the same, and the protocol changes": _vote_changes,
    "sync of a follower": lambda group: _sync(group, group.follower),
    "sync of the leader": lambda group: _sync(group, group.leader),
    "sync of another generation": _sync_other,
    "sync of another protocol": lambda group: _sync(group, group.follower, protocol="roundrobin"),
    "heartbeat": lambda group: _answer(group, group.driver.heartbeat(group.follower)),
    "heartbeat of another generation": _heartbeat_other,
    "heartbeat of a fenced instance": _heartbeat_fenced,
    "leave of one": lambda group: _leave(group, group.follower),
    "leave of all": lambda group: _leave(group, *group.all),
    "commit of a member": _commit_of_member,
    "commit from outside": lambda group: group.driver.commit(),
    "one session expires": _one_session_expires,
    "all sessions expire": _all_sessions_expire,
    "the phase times out": _too_long,
}


def _cells() -> list[tuple[str, ClassicState, str]]:
    assert broker.groups.classic_states.__doc__ is not None
    lines = [line for line in broker.groups.classic_states.__doc__.splitlines() if line.startswith("| ")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert rows[0] == ["event", *ClassicState]
    assert [row[0] for row in rows[1:]] == list(EVENTS)
    cells = [
        (row[0], state, cell) for row in rows[1:] for state, cell in zip(ClassicState, row[1:], strict=True)
    ]
    return [cell for cell in cells if cell[2] != "-"]


@pytest.mark.parametrize(("event", "state", "cell"), _cells())
def test_what_an_event_does_in_a_state(event: str, state: ClassicState, cell: str) -> None:
    answer, _, letter = cell.partition(", ")
    wanted = next(each for each in ClassicState if each[0] == (letter or state[0]))
    group = _group(state)

    assert EVENTS[event](group) == ANSWERS[answer]

    assert group.driver.group.state is wanted
