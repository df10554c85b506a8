"""Values that node-pair liveness takes in and gives out (replication.md section 5)."""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

#: Names a group; opaque here.
GroupKey = Hashable
#: Names one life of a node's process; opaque here.
BootId = Hashable


class Led(NamedTuple):
    """One leadership in a node's list."""

    group: GroupKey
    term: int
    configuration_index: int
    """Index of the configuration that the leader uses: announcements with an older one are ignored."""
    established: bool
    """The leader serves: the first row of its term is committed."""


class Challenge(NamedTuple):
    """The group's term at the challenger, above the one that was listed: that leader is deposed."""

    group: GroupKey
    term: int


class Ping(NamedTuple):
    """One numbered message of a node to another; every one carries the echo of the other direction."""

    number: int
    """Rises with every ping of this life of the sender, whoever it goes to."""
    boot_id: BootId
    list_version: int
    """Version of the sender's list of leaderships after this ping."""
    base_version: int
    """`led` and `dropped` are the changes since this version. 0: `led` is the whole list."""
    led: tuple[Led, ...]
    dropped: tuple[GroupKey, ...]
    echo_number: int
    """The highest number received from the receiver, in its life echo_boot_id; 0: none."""
    echo_boot_id: BootId
    applied_version: int
    """Version of the receiver's list that the sender has applied; 0: none."""
    challenged: tuple[Challenge, ...]
    """Every group of that list whose term is higher at the sender."""
    reply_at_once: bool
    """A read waits for the echo: answer now, not with the next regular ping."""


class Announcement(NamedTuple):
    """`node` says that it leads the group; where terms differ, the highest is right."""

    node: int
    led: Led


class Withdrawal(NamedTuple):
    """`node` leads the group no longer."""

    node: int
    group: GroupKey
    term: int


class LivenessTiming(NamedTuple):
    ping_interval_s: float = 0.1
    """Between pings of a node pair."""
    election_timeout_s: float = 1.0
    """A node that was silent for this long leads nothing. A node whose own loop did not run for this long must not
    serve."""
    check_quorum_s: float = 1.5
    """A leader counts a node if its last echo answers a ping sent within this time. Below two election timeouts, after
    which an isolated leader must not answer any more."""
    change_delay_s: float = 0.005
    """A changed list is sent after this delay, so that many changes share a ping."""

    def validate(self) -> LivenessTiming:
        assert 0 < self.change_delay_s <= self.ping_interval_s < self.election_timeout_s
        assert self.election_timeout_s <= self.check_quorum_s
        assert self.check_quorum_s + self.ping_interval_s <= 2 * self.election_timeout_s
        return self


class LivenessOutput:
    """Orders of one call. Handle `stalled` first."""

    __slots__ = (
        "announcements",
        "challenges",
        "ended",
        "pings",
        "quorum_checks",
        "quorum_due",
        "stalled",
        "suspects",
        "withdrawals",
    )

    def __init__(self) -> None:
        #: The loop slept longer than an election timeout: step down everywhere before anything is served.
        self.stalled = False
        #: Send these nodes a ping now.
        self.pings: list[int] = []
        #: Groups that follow a leader which is not live any more: `Group.leader_suspected`.
        self.suspects: list[GroupKey] = []
        #: `Group.leader_heard` where the group is here; routing of clients in any case.
        self.announcements: list[Announcement] = []
        self.withdrawals: list[Withdrawal] = []
        #: Nodes whose leaderships have all ended. If a node is live again, its announcements are repeated.
        self.ended: list[int] = []
        #: Groups led here of which another node knows a higher term: `Group.term_seen`.
        self.challenges: list[Challenge] = []
        #: Nodes whose echo lapsed: ask `has_quorum` for the groups led here that have a voter there.
        self.quorum_checks: list[int] = []
        #: Groups led here whose first check is due, if they are still led: ask `has_quorum`.
        self.quorum_due: list[GroupKey] = []
