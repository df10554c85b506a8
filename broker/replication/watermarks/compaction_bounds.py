"""How far a replica is cleaned, and what its whole group may therefore remove: MCCO, MXFO, MTRO and MXRO
(coordinated-compaction.md, sections 1 and 2; the letters below are its rules).

Each replica reports its own two to the leader. The leader takes the least of all members, also of those that are away,
and tells everybody. All four are durable before anybody hears of them (F3), and none ever falls.

A new leader starts from the bounds that it knows itself (L4). Votes carry those of the voters, but are not asked: one
voter that is wrong would have the whole group remove what is needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from broker.replication.watermarks.blocked_by import BlockedBy
from broker.replication.watermarks.membership_seed import membership_seed
from broker.replication.watermarks.pins import Pins
from raft.types import RemovalBounds, ReplicaId
from storage.journal_records import UNSET, Bounds

if TYPE_CHECKING:
    from broker.replication.replica import Replica


class CleanedReport(NamedTuple):
    """What a replica says of itself. Its offsets and its term are durable there. The last two are for users."""

    first_offset: int
    """What lies below, nobody gets from it any more (`Log.install_offset`). Its log start may be higher."""
    mcco: int
    mxfo: int
    mtro: int
    """As it knows them."""
    mxro: int
    copied_in_term: int
    blocked_by: BlockedBy
    """Why its next pass is not due."""
    dirty_bytes: int
    """What its next pass would read anew."""


class CompactionBounds:
    """Of one replica. An install may replace the replica's log meanwhile."""

    __slots__ = (
        "_blocked_by",
        "_copied_in_term",
        "_dirty_bytes",
        "_pins",
        "_replica",
        "_reports",
        "_reports_term",
        "durable",
        "reported",
    )

    #: Invariants: no field of `durable` ever falls. `_reports` are of members of the group, in the term
    #: `_reports_term`.

    def __init__(self, replica: Replica, durable: Bounds) -> None:
        self._replica = replica
        #: What the journal holds, durably. Its log start is not looked at: `LogStart` has it.
        self.durable = durable
        #: The journal holds this, perhaps not durably yet.
        self._copied_in_term = durable.copied_in_term
        #: What the leader was told last, and which leader in which term.
        self.reported: tuple[CleanedReport, ReplicaId, int] | None = None
        self._blocked_by = BlockedBy.NOTHING
        self._dirty_bytes = 0
        self._reports: dict[ReplicaId, CleanedReport] = {}
        self._reports_term = -1
        self._pins = Pins()

    # -- this replica

    @property
    def cleaned_end(self) -> int:
        """MCCO."""
        return max(self.durable.mcco, _floor(self._replica.log.start_offset))

    @property
    def mtro(self) -> int:
        return self.durable.mtro

    @property
    def mxro(self) -> int:
        return self.durable.mxro

    @property
    def is_in_use(self) -> bool:
        """Whether there are bounds: the topic is compacted, or was."""
        return self._replica.config.is_compacted or max(self.durable[2:6]) > UNSET

    @property
    def may_report(self) -> bool:
        """Not while it would look like a log from before this replica was added: it is empty, or has just been
        begun, which is not durable yet."""
        return self._replica.log.end_index > 0 and self.durable.copied_in_term >= self._copied_in_term

    def report(self) -> CleanedReport:
        bounds = self.durable
        return CleanedReport(
            self._replica.log.install_offset,
            bounds.mcco,
            bounds.mxfo,
            bounds.mtro,
            bounds.mxro,
            bounds.copied_in_term,
            self._blocked_by,
            self._dirty_bytes,
        )

    def blocked(self, blocked_by: BlockedBy, dirty_bytes: int) -> None:
        """What the worker has found when it looked at the log."""
        self._blocked_by, self._dirty_bytes = blocked_by, dirty_bytes

    def passed(self, end_offset: int, transaction_free_end: int, now_ms: int) -> None:
        """A pass is durable: the log is cleaned below `end_offset`. `transaction_free_end`: as `PassOver`."""
        self._raise(mcco=end_offset, mxfo=transaction_free_end, passed_at_ms=now_ms)

    def rewriting_begins(self, end_offset: int) -> None:
        """A pass is about to remove batches below (`Log.rewritten_end`)."""
        self._raise(rewritten_end=end_offset)

    def copying_begins(self, term: int) -> None:
        """The log was empty. The leader of this term has sent its first entry."""
        self._copied_in_term = term
        self._raise(copied_in_term=term)

    def _raise(self, **fields: int) -> None:
        self._replica.host.persist_bounds(self._replica, Bounds(self._replica.key, **fields))

    def persisted(self, bounds: Bounds) -> None:
        """The journal holds this, durably."""
        self.durable = bounds
        group = self._replica.group
        group.watermarks = group.watermarks._replace(mtro=bounds.mtro, mxro=bounds.mxro)
        if self._replica.is_leader:
            self.recompute()

    # -- a follower

    def bounds_received(self, leader: ReplicaId, term: int, mtro: int, mxro: int) -> bool:
        """F1: an older leader's are passed over. F2: they say nothing of this replica's own log.

        A leader tells only who does not know them, as far as it has heard. Returns True where they are known here: a
        report was lost, and is to be repeated."""
        group = self._replica.group
        if term != group.term or leader != group.leader:
            return False
        if mtro > self.mtro or mxro > self.mxro:
            self._raise(mtro=mtro, mxro=mxro)
            return False
        self.reported = None
        return True

    # -- the leader

    def reported_by(self, member: ReplicaId, term: int, report: CleanedReport) -> bool:
        """Whether it counts (L1): it was built in this leader's term, by a member under its present identity."""
        group = self._replica.group
        if not self._replica.is_leader or term != group.term or member not in group.members:
            return False
        self._of_this_term()[member] = report
        self.recompute()
        return True

    def _of_this_term(self) -> dict[ReplicaId, CleanedReport]:
        term = self._replica.group.term
        if term != self._reports_term:
            self._reports, self._reports_term, self._pins = {}, term, Pins()
        return self._reports

    def report_of(self, member: ReplicaId) -> CleanedReport | None:
        """L3: None, and it blocks every rise, if the member has not reported in this term."""
        if member == self._replica.group.self_id:
            return self.report()
        return self._of_this_term().get(member)

    @property
    def pins(self) -> Pins:
        """Of this leader."""
        self._of_this_term()
        return self._pins

    def is_legitimate(self, member: ReplicaId) -> bool | None:
        """L6: whether what the member holds is a copy as others have it. None: it has not reported."""
        if self.report_of(member) is None:
            return None
        cleaned = self.cleaned_below(member)
        return cleaned is not None and cleaned.mtro >= self.mtro and cleaned.mxro >= self.mxro

    def to_be_told(self) -> list[ReplicaId]:
        """L5: the members that do not know the bounds, as far as they have said, or must discard their logs."""
        told = []
        for member in self._replica.group.members:
            report = self.report_of(member)
            if member == self._replica.group.self_id:
                continue
            is_behind = report is None or report.mtro < self.mtro or report.mxro < self.mxro
            if is_behind or self.must_discard(member):
                told.append(member)
        return told

    def must_discard(self, member: ReplicaId) -> bool:
        """L6, for learners: nothing counts on what they hold, so an order that rests on a lie costs nothing. No voter
        is in this state, because a learner does not become one before it has shown what it holds (`may_vote`)."""
        return member in self._replica.group.configuration.learners and self.is_legitimate(member) is False

    def may_vote(self, learner: ReplicaId) -> bool:
        """A learner becomes a voter once it has shown that it is a legitimate copy, whatever the topic is to this
        leader: that it knows no bounds, or no policy that compacts, does not mean that nobody removes anything.

        *Schedule:* A leads, knows the bounds, and drops a tombstone. C has not heard of them. A adds B, which has a log
        from before, and sends it what comes after the tombstone. C is elected."""
        return self.is_legitimate(learner) is True

    def cleaned_below(self, member: ReplicaId) -> RemovalBounds | None:
        """None: it has not reported, or its log is from before it was added."""
        report = self.report_of(member)
        if report is None:
            return None
        seed = membership_seed(self._replica.group.rows, member, report.copied_in_term)
        if not seed.is_begun_here:
            return None
        floor = _floor(report.first_offset)
        return RemovalBounds(
            max(report.mcco, floor, seed.bounds.mtro), max(report.mxfo, floor, seed.bounds.mxro)
        )

    def recompute(self) -> None:
        """L2, L3: the least of all members, if all of them have reported. Nothing is ever lowered."""
        if not self.is_in_use:
            return
        cleaned = {member: self.cleaned_below(member) for member in self._replica.group.members}
        self.pins.update(cleaned, self._replica.host.now())
        known = [each for each in cleaned.values() if each is not None]
        if not known or len(known) < len(cleaned):
            return
        mtro, mxro = map(min, zip(*known, strict=True))
        if mtro > self.mtro or mxro > self.mxro:
            self._raise(mtro=mtro, mxro=mxro)


def _floor(first_offset: int) -> int:
    """Below where a log begins nothing is left to be cleaned. UNSET: nothing was ever deleted."""
    return first_offset if first_offset > 0 else UNSET
