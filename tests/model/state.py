"""One state of the model: what each replica holds of one old record and of its guard, and what it knows of the others.

The *old record* is a value, and its *guard* the tombstone that deletes it. Or the old record is data of a transaction,
and its guard the marker that ends it. The rules are the same for both (README.md). The old record stands at index 0 of
the log and the guard at index 1. Rows of leaders and of configurations follow.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

OLD_INDEX, GUARD_INDEX = 0, 1
#: The log was founded with the group, and not copied (`Replica.begun_in`).
FOUNDED = -1


class Member(NamedTuple):
    """A replica as configurations name it. A log that is begun anew has another incarnation."""

    node: int
    incarnation: int


class Configuration(NamedTuple):
    voters: tuple[Member, ...]
    learners: tuple[Member, ...] = ()

    @property
    def members(self) -> tuple[Member, ...]:
        return self.voters + self.learners


class Kind(IntEnum):
    OLD = 0
    GUARD = 1
    LEADER = 2
    CONFIGURATION = 3


class Entry(NamedTuple):
    """An entry of the Raft log."""

    term: int
    kind: Kind
    configuration: Configuration | None = None
    #: Whether the leader knew, when it appended this row, a bound that lies above the guard (L7).
    seed: bool = False


class Report(NamedTuple):
    """What a replica tells of itself."""

    #: Its MCCO (or MXFO) lies above the guard.
    is_clean: bool
    begun_in: int


class Replica(NamedTuple):
    """What one node has, on its disk and in memory."""

    incarnation: int
    log: tuple[Entry, ...]
    #: So many entries are committed, as far as it knows.
    commit_end: int
    holds_old: bool
    holds_guard: bool
    #: Its journal says that its MCCO (or MXFO) lies above the guard.
    is_clean: bool = False
    #: It knows a MTRO (or MXRO) that lies above the guard.
    knows_bound: bool = False
    #: The term of the leader that sent the first entry of its log.
    begun_in: int = FOUNDED
    term: int = 1
    leads: bool = False
    #: Of a leader: who has reported in its term.
    reports: tuple[tuple[Member, Report], ...] = ()
    #: Of a leader, if L5 is off: whom it will tell the bound, once each.
    to_tell: tuple[int, ...] = ()
    #: False: its last pass is in the page cache only. A loss of power brings the old record back.
    is_flushed: bool = True


def begun_anew(replica: Replica) -> Replica:
    """An empty log under the next incarnation: nothing that was known of the one before counts."""
    return Replica(replica.incarnation + 1, (), 0, False, False, term=replica.term)


class LateReport(NamedTuple):
    """A message under way. It may arrive at any later time, and more than once."""

    member: Member
    leader: int
    term: int
    report: Report


class State(NamedTuple):
    replicas: tuple[Replica, ...]
    late: LateReport | None = None
    #: How many more faults happen.
    faults_left: int = 0

    def member(self, node: int) -> Member:
        return Member(node, self.replicas[node].incarnation)

    def with_replica(self, node: int, replica: Replica) -> State:
        replicas = self.replicas
        return State((*replicas[:node], replica, *replicas[node + 1 :]), self.late, self.faults_left)


class Step(NamedTuple):
    """A transition: the name of its function, who does it, and with whom."""

    action: str
    node: int
    other: int | None = None
