"""The searches: small groups, each with the steps that matter to some fences, and explored as a whole."""

from __future__ import annotations

from dataclasses import replace

from tests.model.exchange_steps import (
    begin_leading,
    bounds_of_another_topic_arrive,
    late_report_arrives,
    lose_bounds,
    report,
    rise,
    send_late_report,
    tell,
)
from tests.model.fault_steps import cut_power, damage, restart
from tests.model.membership_steps import add, discard, promote, remove, remove_gone
from tests.model.pass_steps import clean, drop, flush
from tests.model.raft_steps import hear
from tests.model.state import Configuration, Entry, Kind, Member, Replica, State
from tests.model.world import World

A, B, C, D = (Member(node, 0) for node in range(4))
ABC, AB, AC = Configuration((A, B, C)), Configuration((A, B)), Configuration((A, C))

_OLD, _GUARD = Entry(1, Kind.OLD), Entry(1, Kind.GUARD)
#: Who has both records, and who was away when the guard was written.
_FULL = Replica(0, (_OLD, _GUARD), 2, True, True)
_BEHIND = Replica(0, (_OLD,), 1, True, False)
_EMPTY = Replica(0, (), 0, False, False, term=0)
_LEADER = _FULL._replace(leads=True)

_BASIC = (begin_leading, hear, clean, drop, report, rise, tell)

MEMBERS = World(
    "members",
    "three members that stay; one of them may have been away when the guard was written",
    ABC,
    (State((_LEADER, _FULL, _FULL)), State((_LEADER, _BEHIND, _FULL))),
    (*_BASIC, bounds_of_another_topic_arrive),
    max_term=2,
)

UNCOMMITTED = World(
    "uncommitted guard",
    "only the leader has the guard yet",
    ABC,
    (State((_LEADER._replace(commit_end=1), _BEHIND, _BEHIND)),),
    _BASIC,
    max_term=2,
)

POWER = World(
    "loss of power",
    "a pass may be in the page cache only when power is lost, once",
    ABC,
    (State((_LEADER, _FULL, _FULL), faults_left=1), State((_LEADER, _BEHIND, _FULL), faults_left=1)),
    (*_BASIC, flush, cut_power),
    max_term=1,
    has_page_cache=True,
)

LOST_LOG = World(
    "lost log",
    "a disk loses a log that was durable, once",
    ABC,
    (State((_LEADER, _FULL, _FULL), faults_left=1),),
    (*_BASIC, damage),
    max_incarnation=1,
    max_term=2,
)

REMOVAL = World(
    "removal",
    "a member is removed, and that may be lost",
    ABC,
    (State((_LEADER, _FULL, _FULL)), State((_LEADER, _BEHIND, _FULL))),
    (*_BASIC, remove),
    max_term=2,
    max_configurations=2,
    movable=(B.node,),
)

ADDITION = World(
    "addition",
    "two members, and a third that is added and copies from either, record by record",
    AB,
    (State((_LEADER, _FULL, _EMPTY)),),
    (*_BASIC, add, promote),
    max_term=2,
    max_configurations=3,
    movable=(C.node,),
)


def _changed(*voters: Member, learners: tuple[Member, ...] = (), term: int = 1) -> Entry:
    return Entry(term, Kind.CONFIGURATION, Configuration(voters, learners))


_GREW = Replica(0, (_OLD, _GUARD, _changed(A, C, learners=(B,)), _changed(A, B, C)), 4, True, True)

RESTART = World(
    "restart",
    "B was added to A and C; then it is removed, which is not committed, and a node starts again, once",
    AC,
    (State((_GREW._replace(leads=True), _GREW._replace(begun_in=1), _GREW), faults_left=1),),
    (begin_leading, hear, clean, report, rise, remove, restart),
    max_term=2,
    max_configurations=4,
    movable=(B.node,),
)

_WITHOUT_B = Replica(0, (_OLD, _GUARD, _changed(A, C)), 3, True, True)

ADDED_AGAIN = World(
    "added again",
    "B was removed while it was away, and is added again, with the log that it had",
    ABC,
    (
        State((_WITHOUT_B._replace(leads=True), _BEHIND, _WITHOUT_B)),
        State((_WITHOUT_B._replace(leads=True), _FULL, _WITHOUT_B)),
    ),
    (*_BASIC, add, promote, discard, remove_gone),
    max_term=2,
    max_configurations=4,
    max_incarnation=1,
    movable=(B.node,),
)

ADDED_AGAIN_LIVE = replace(
    ADDED_AGAIN,
    name="added again, one leader",
    about=f"{ADDED_AGAIN.about}; no other leader is elected",
    max_term=1,
    is_live=True,
)

BEGUN_ANEW = World(
    "begun anew",
    "B was added to A and C. Its log is lost; it begins anew as another member, and a report of the first is late",
    AC,
    (State((_GREW._replace(leads=True), _GREW._replace(begun_in=1), _GREW), faults_left=1),),
    (
        hear,
        clean,
        drop,
        report,
        rise,
        send_late_report,
        late_report_arrives,
        damage,
        add,
        promote,
        remove_gone,
    ),
    max_term=1,
    max_configurations=5,
    max_incarnation=1,
    movable=(B.node,),
)

_SINCE = (
    _OLD,
    _GUARD,
    Entry(2, Kind.LEADER),
    _changed(A, B, C, learners=(D,), term=2),
    Entry(3, Kind.LEADER),
)
_LATER = Replica(0, _SINCE, len(_SINCE), True, True, term=3)
_LATER_CLEANED = _LATER._replace(holds_old=False, is_clean=True)

#: Who was cleaned before, and that only A is elected, keeps the world small.
STALE_LEADER = World(
    "stale leader",
    "A still leads in term 1. C led in term 2 and added D, which copied the old record. B leads. All but D are cleaned",
    ABC,
    (
        State(
            (
                _LEADER._replace(holds_old=False, is_clean=True),
                _LATER_CLEANED._replace(leads=True),
                _LATER_CLEANED,
                _BEHIND._replace(begun_in=2, term=2),
            )
        ),
    ),
    (*_BASIC, promote),
    max_term=4,
    max_configurations=3,
    movable=(D.node,),
    electable=(A.node,),
)

LOSSES = World(
    "lost messages",
    "three members that stay, and what a leader tells but once may be lost",
    ABC,
    (State((_LEADER, _FULL, _FULL)),),
    (*_BASIC, lose_bounds),
    max_term=2,
    is_live=True,
)

_CLEANED = Replica(0, (_OLD, _GUARD), 2, False, True, is_clean=True, knows_bound=True)

NEVER_CLEANED = World(
    "no pass",
    "a member is added that makes no pass, to two that know a bound",
    AB,
    (State((_CLEANED._replace(leads=True), _CLEANED, _EMPTY)),),
    (*_BASIC, add, promote),
    max_term=2,
    max_configurations=3,
    movable=(C.node,),
    never_cleaned=(C.node,),
    is_live=True,
)

WORLDS = (
    MEMBERS,
    UNCOMMITTED,
    POWER,
    LOST_LOG,
    REMOVAL,
    ADDITION,
    RESTART,
    ADDED_AGAIN,
    ADDED_AGAIN_LIVE,
    BEGUN_ANEW,
    STALE_LEADER,
    LOSSES,
    NEVER_CLEANED,
)

#: The same with wider limits: minutes.
WIDE_WORLDS = (
    replace(MEMBERS, name="members, wide", max_term=4),
    replace(POWER, name="loss of power, wide", max_term=2),
    replace(ADDITION, name="addition, wide", max_term=3),
    replace(ADDED_AGAIN, name="added again, wide", max_term=3, max_configurations=5),
    replace(
        BEGUN_ANEW, name="begun anew, wide", max_term=2, actions=(*BEGUN_ANEW.actions, begin_leading, tell)
    ),
    replace(STALE_LEADER, name="stale leader, wide", electable=()),
)
