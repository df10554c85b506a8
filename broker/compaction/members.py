"""How the members of a group stand with compaction, as the leader of the group sees it."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

from broker.replication.replica import Replica
from broker.replication.watermarks.blocked_by import BlockedBy
from broker.replication.watermarks.pins import Pin
from raft.types import RemovalBounds, ReplicaId
from storage.journal_records import UNSET


class MemberStanding(NamedTuple):
    member: ReplicaId
    is_learner: bool
    cleaned: RemovalBounds
    """Below which it is known to be clean: MCCO and MXFO, as the group counts them. UNSET where nothing is known."""
    blocked_by: BlockedBy
    """Why it is not clean further."""
    dirty_bytes: int
    tombstone_pin: Pin | None
    """It keeps MTRO from rising."""
    marker_pin: Pin | None
    """It keeps MXRO from rising."""


def member_standings(leader: Replica, alive: Collection[int]) -> Iterator[MemberStanding]:
    """Of all members of a group that is led here, this one included. `alive`: the ids of the nodes that are there."""
    group, bounds = leader.group, leader.bounds
    in_sync = group.in_sync(leader.host.now(), leader.host.replica_lag_time_max_s)
    for member in sorted(group.members):
        report = bounds.report_of(member)
        cleaned = bounds.cleaned_below(member)
        if member.node_id not in alive:
            blocked = BlockedBy.OFFLINE
        elif report is None:
            blocked = BlockedBy.UNREPORTED
        elif cleaned is None:
            blocked = BlockedBy.STALE_LOG
        elif member not in in_sync and member in group.configuration.voters:
            blocked = BlockedBy.BEHIND
        else:
            blocked = report.blocked_by
        yield MemberStanding(
            member,
            member in group.configuration.learners,
            RemovalBounds(UNSET, UNSET) if cleaned is None else cleaned,
            blocked,
            0 if report is None else report.dirty_bytes,
            bounds.pins.of_tombstones.get(member),
            bounds.pins.of_markers.get(member),
        )
