"""REPORT and BOUNDS between nodes, many groups in one message (coordinated-compaction.md, section 2).

A follower tells its leader how far it is cleaned. A leader tells its followers what the whole group may remove. Both
are messages of their own: an idle group must exchange them, too. A follower repeats its report now and then, and at
once when it has changed. A leader repeats the bounds until each member says that it knows them, and a member answers
that. So nothing depends on a single message.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from broker.replication.events import Directory, directory_of
from broker.replication.watermarks.bounds import DurableBounds
from broker.replication.watermarks.compaction_bounds import CleanedReport
from broker.scheduling.ticks import SLOW_TICK_S, Ticks
from protocol import peer
from raft.types import ReplicaId
from storage.journal_records import Bounds
from storage.log_types import GroupKey

if TYPE_CHECKING:
    from broker.replication.replica import Replica

TICK_S = 1.0
#: All replicas are looked at once in TICK_S, a part of them with each tick: there may be thousands.
_PARTS = round(TICK_S / SLOW_TICK_S)
#: A report is repeated after this part of delete.retention.ms, within these limits.
PERIOD_PART = 24
MAX_PERIOD_S = 600.0


class BoundsExchange:
    """Gathers what a loop iteration has to say. Each directory is sent one message of a kind at its end."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        replicas: Mapping[GroupKey, Replica],
        bounds: DurableBounds,
        after_flush_of: Callable[[Replica, Callable[[], None]], None],
        send_to: Callable[[Directory, peer.PeerMessage], None],
        ticks: Ticks,
    ) -> None:
        self._loop = loop
        self._replicas = replicas
        self._bounds = bounds
        self._after_flush_of = after_flush_of
        self._send_to = send_to
        #: Those with something to say, in that order.
        self._due: dict[Replica, None] = {}
        #: When the report of a follower is repeated, in loop time.
        self._repeat_at: dict[Replica, float] = {}
        #: Those that are looked at in this second, and which part of them is next.
        self._looked_at: Sequence[Replica] = ()
        self._part = 0
        ticks.every(SLOW_TICK_S, self._tick)

    def persist(self, replica: Replica, bounds: Bounds) -> None:
        """As `ReplicaHost.persist_bounds`."""
        recorded = self._bounds.raise_to(bounds)
        if recorded is not None:
            self._after_flush_of(replica, partial(self._persisted, replica, recorded))

    def _persisted(self, replica: Replica, bounds: Bounds) -> None:
        replica.bounds.persisted(bounds)
        self.add_replica(replica)

    def reported(self, replica: Replica, member: ReplicaId, term: int, report: CleanedReport) -> None:
        """A member has told how far it is cleaned. Who is no member yet is not answered: it would report again at
        once."""
        if replica.bounds.reported_by(member, term, report):
            self.add_replica(replica)

    def told(self, replica: Replica, leader: ReplicaId, term: int, mtro: int, mxro: int) -> None:
        """A leader has told the bounds."""
        if replica.bounds.bounds_received(leader, term, mtro, mxro):
            self.add_replica(replica)

    def add_replica(self, replica: Replica) -> None:
        """Its bounds have changed, durably, or it leads now, or a member has spoken."""
        if not self._due:
            self._loop.call_soon(self._send)
        self._due[replica] = None

    def discard_replica(self, replica: Replica) -> None:
        """It is being closed."""
        self._due.pop(replica, None)
        self._repeat_at.pop(replica, None)

    def _tick(self, now: float) -> None:
        if self._part == 0:
            self._looked_at = list(self._replicas.values())
        part, self._part = self._part, (self._part + 1) % _PARTS
        for replica in self._looked_at[part::_PARTS]:
            # A learner shows what it holds before it votes, whatever the topic is.
            if replica.is_open and (replica.bounds.is_in_use or replica.group.configuration.learners):
                if replica.is_leader:
                    replica.bounds.recompute()
                self.add_replica(replica)

    def _send(self) -> None:
        due, self._due = self._due, {}
        now = self._loop.time()
        updates: dict[Directory, list[peer.BoundsUpdate]] = {}
        reports: dict[Directory, list[peer.BoundsReport]] = {}
        for replica in due:
            leader = replica.group.leader
            if replica.is_leader:
                for member in replica.bounds.to_be_told():
                    updates.setdefault(directory_of(member), []).append(_update(replica, member))
            elif leader is not None and self._is_report_due(replica, leader, now):
                reports.setdefault(directory_of(leader), []).append(_report(replica))
        for directory, of_leaders in updates.items():
            self._send_to(directory, peer.BoundsUpdates(groups=of_leaders))
        for directory, of_followers in reports.items():
            self._send_to(directory, peer.BoundsReports(groups=of_followers))

    def _is_report_due(self, replica: Replica, leader: ReplicaId, now: float) -> bool:
        bounds = replica.bounds
        if not bounds.may_report:
            return False
        telling = (bounds.report(), leader, replica.group.term)
        if telling == bounds.reported and now < self._repeat_at.get(replica, now):
            return False
        bounds.reported = telling
        period_s = replica.config.delete_retention_ms / 1000 / PERIOD_PART
        self._repeat_at[replica] = now + min(max(period_s, TICK_S), MAX_PERIOD_S)
        return True


def _update(replica: Replica, member: ReplicaId) -> peer.BoundsUpdate:
    group, bounds = replica.group, replica.bounds
    return peer.BoundsUpdate(
        topic_id=replica.key.topic_id,
        partition=replica.key.partition,
        incarnation=group.self_id.incarnation,
        follower_incarnation=member.incarnation,
        term=group.term,
        mtro=bounds.mtro,
        mxro=bounds.mxro,
        must_discard=bounds.must_discard(member),
    )


def _report(replica: Replica) -> peer.BoundsReport:
    group, report = replica.group, replica.bounds.report()
    return peer.BoundsReport(
        topic_id=replica.key.topic_id,
        partition=replica.key.partition,
        incarnation=group.self_id.incarnation,
        term=group.term,
        **report._asdict(),
    )
