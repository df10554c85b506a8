"""What replicas tell each other of compaction, and whose word counts for the bounds (coordinated-compaction.md,
section 2)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from broker.replication.log_opener import LogOpener
from broker.replication.replica import Replica
from broker.replication.watermarks import compaction_bounds
from broker.replication.watermarks.blocked_by import BlockedBy
from broker.replication.watermarks.bounds import DurableBounds
from broker.replication.watermarks.bounds_exchange import BoundsExchange
from broker.replication.watermarks.compaction_bounds import CleanedReport, CompactionBounds
from broker.replication.watermarks.membership_seed import UNSET_BOUNDS, Seed
from raft.group import Group
from raft.types import Configuration, RemovalBounds, ReplicaId
from storage.journal_records import UNSET, Bounds, GroupState
from tests.simulator.mutations.kind import Mutation
from tests.simulator.mutations.removal_bounds_stories import (
    a_cleaned_log_is_lost_and_copied_again,
    a_follower_misses_that_the_bounds_rise,
    a_leader_starts_again_with_a_removal_that_is_not_committed,
    a_leader_that_has_not_heard_of_the_bounds_judges_a_learner,
    a_member_is_added_and_not_cleaned_yet,
    a_new_leader_knows_bounds_that_a_follower_does_not,
    a_new_leader_knows_older_bounds_than_a_follower,
    a_removal_is_appended_and_lost,
    a_removed_member_comes_back_with_its_log,
    a_report_comes_when_its_member_has_begun_anew,
    a_report_is_lost,
    a_transaction_is_over_and_a_member_is_not_cleaned,
    an_addition_is_appended_and_not_committed,
    bounds_reach_who_is_back_before_it_reports,
)
from tests.simulator.mutations.switch import off

_EVERYWHERE = 2**62


def _silent_members_are_left_out(original: Any) -> Any:
    """Who has not reported counts as cleaned as far as this leader is."""

    def report_of(self: CompactionBounds, member: Any) -> CleanedReport | None:
        return original(self, member) or self.report()

    return report_of


def _every_log_was_begun_here(seed_of: Callable[..., Seed]) -> object:
    return lambda rows, member, copied_in_term: seed_of(rows, member, _EVERYWHERE)


def _without_bounds(seed_of: Callable[..., Seed]) -> object:
    return lambda *args: seed_of(*args)._replace(bounds=UNSET_BOUNDS)


def _if_its_row_has_bounds(seed_of: Callable[..., Seed]) -> object:
    def seed(*args: Any) -> Seed:
        found = seed_of(*args)
        return found._replace(is_begun_here=found.is_begun_here or found.bounds == UNSET_BOUNDS)

    return seed


def _if_bounds_are_known(may_vote: Callable[..., bool]) -> object:
    return lambda self, learner: max(self.mtro, self.mxro) == UNSET or may_vote(self, learner)


def _outcome_is_enough(cleaned_of: Callable[..., RemovalBounds | None]) -> object:
    def cleaned(self: CompactionBounds, *args: Any) -> RemovalBounds | None:
        found = cleaned_of(self, *args)
        return found and found._replace(mxro=max(found.mxro, self._replica.last_stable_offset))

    return cleaned


def _before_the_flush(_: object) -> object:
    def persist(self: BoundsExchange, replica: Replica, bounds: Bounds) -> None:
        recorded = self._bounds.raise_to(bounds)
        if recorded is not None:
            self._persisted(replica, recorded)

    return persist


def _of_any_incarnation(reported_by: Callable[..., None]) -> object:
    def reported(self: CompactionBounds, member: ReplicaId, term: int, report: CleanedReport) -> None:
        for each in self._replica.group.members:
            if each.node_id == member.node_id:
                reported_by(self, each, term, report)

    return reported


def _least_of(members_of: Callable[[Group], Iterable[ReplicaId]]) -> Callable[[Any], Any]:
    """Only these members count for the bounds."""

    def make(_: object) -> object:
        def recompute(self: CompactionBounds) -> None:
            cleaned = [self.cleaned_below(each) for each in members_of(self._replica.group)]
            known = [each for each in cleaned if each is not None]
            if len(known) == len(cleaned):
                self._raise(
                    mtro=min((each.mtro for each in known), default=-1),
                    mxro=min((each.mxro for each in known), default=-1),
                )

        return recompute

    return make


def _since_the_committed(group: Group) -> Iterable[ReplicaId]:
    """... by the commit index, which a restart loses."""
    known = group.lineage.configuration_before(group.commit_end) or Configuration((), ())
    return dict.fromkeys(group.configuration.members + known.members)


def _raises_its_own(_: object) -> object:
    def received(self: CompactionBounds, leader: ReplicaId, term: int, mtro: int, mxro: int) -> None:
        group = self._replica.group
        if term == group.term and leader == group.leader:
            self._raise(mtro=mtro, mxro=mxro, mcco=mtro, mxfo=mxro)

    return received


def _by_offsets_alone(seed_of: Callable[..., Seed]) -> object:
    return lambda *args: seed_of(*args)._replace(is_begun_here=True)


def _takes_any(bounds_received: Callable[..., bool]) -> object:
    def received(self: CompactionBounds, leader: ReplicaId, term: int, mtro: int, mxro: int) -> bool:
        if term == self._replica.group.term and leader == self._replica.group.leader:
            self._raise(mtro=mtro, mxro=mxro)
        return False

    return received


def _as_told(raise_to: Callable[..., Bounds | None]) -> object:
    def lower_to(self: DurableBounds, bounds: Bounds) -> Bounds | None:
        recorded = self.of(bounds.group)
        mtro, mxro = bounds.mtro, bounds.mxro
        if max(mtro, mxro) == UNSET or (mtro >= recorded.mtro and mxro >= recorded.mxro):
            return raise_to(self, bounds)
        lowered = recorded._replace(mtro=mtro, mxro=mxro)
        self._journal.append(lowered)
        return lowered

    return lower_to


def _unchecked(_: object) -> object:
    def apply(self: Bounds, state: GroupState) -> None:
        state.bounds = self

    return apply


def _told_on_a_rise(*, by_each_leader: bool) -> Callable[[Any], Any]:
    """Once, whether it arrives or not. `by_each_leader`: also by one whose bounds have not risen."""

    def make(to_be_told: Callable[..., list[ReplicaId]]) -> object:
        told: dict[tuple[int, int], tuple[int, int]] = {}

        def only(self: CompactionBounds) -> list[ReplicaId]:
            group, known = self._replica.group, (self.mtro, self.mxro)
            at = id(self), group.term
            begins_with = (-1, -1) if by_each_leader else known
            has_risen = told.get(at, begins_with) != known
            told[at] = known
            return [each for each in group.members if has_risen and each != group.self_id]

        return only

    return make


def _only_changes(_: object) -> object:
    def is_due(self: BoundsExchange, replica: Replica, leader: ReplicaId, now: float) -> bool:
        # Without what users are told, which changes now and then, and repeats the rest by that.
        report = replica.bounds.report()._replace(blocked_by=BlockedBy.NOTHING, dirty_bytes=0)
        telling = report, leader, replica.group.term
        is_new = telling != replica.bounds.reported
        replica.bounds.reported = telling
        return is_new

    return is_due


def _heard_in_silence(bounds_received: Callable[..., bool]) -> object:
    def received(self: CompactionBounds, *args: Any) -> bool:
        reported = self.reported
        bounds_received(self, *args)
        self.reported = reported
        return False

    return received


MUTATIONS = (
    Mutation(
        "silent-member-blocks",
        "A member that has not reported blocks every rise (L3)",
        off((CompactionBounds, "report_of", _silent_members_are_left_out)),
        mix=None,
    ),
    Mutation(
        "log-of-this-membership",
        "A member's log counts as a copy only if it was begun after the row that names the member (F5)",
        off((compaction_bounds, "membership_seed", _every_log_was_begun_here)),
        story=a_removed_member_comes_back_with_its_log,
    ),
    Mutation(
        "judged-without-bounds",
        "... also if neither its row nor the leader that judges it has bounds: others may know some (F5, L6)",
        off(
            (compaction_bounds, "membership_seed", _if_its_row_has_bounds),
            (CompactionBounds, "may_vote", _if_bounds_are_known),
        ),
        story=a_leader_that_has_not_heard_of_the_bounds_judges_a_learner,
    ),
    Mutation(
        "no-copy-no-vote",
        "A learner becomes a voter once it has shown that its log is a legitimate copy (L6)",
        off((CompactionBounds, "may_vote", lambda _: lambda self, learner: True)),
        story=a_removed_member_comes_back_with_its_log,
    ),
    Mutation(
        "no-copy-discards",
        "A learner whose log is no legitimate copy discards it (L6)",
        off((CompactionBounds, "must_discard", lambda _: lambda self, member: False)),
        story=a_removed_member_comes_back_with_its_log,
        note="a property: without it the member never votes",
    ),
    Mutation(
        "bounds-in-the-row",
        "A member that is added is clean below the bounds in the row that names it (L7)",
        off((compaction_bounds, "membership_seed", _without_bounds)),
        story=a_member_is_added_and_not_cleaned_yet,
        note="a property: without it the member does not vote before it is cleaned",
    ),
    Mutation(
        "told-when-durable",
        "MCCO, MXFO, MTRO and MXRO are durable before anybody hears of them (F3)",
        off((BoundsExchange, "persist", _before_the_flush)),
        mix=None,
    ),
    Mutation(
        "report-of-this-incarnation",
        "A report counts for the incarnation that has sent it (L1)",
        off((CompactionBounds, "reported_by", _of_any_incarnation)),
        story=a_report_comes_when_its_member_has_begun_anew,
    ),
    Mutation(
        "removal-counts-when-committed",
        "A member that is removed counts for the bounds until its removal is committed (L2)",
        off((CompactionBounds, "recompute", _least_of(lambda group: group.configuration.members))),
        story=a_removal_is_appended_and_lost,
    ),
    Mutation(
        "addition-counts-when-appended",
        "A member that is added counts for the bounds when its row is appended (L2)",
        off(
            (CompactionBounds, "recompute", _least_of(lambda group: group.committed_configuration.members)),
            (CompactionBounds, "may_vote", lambda _: lambda self, learner: True),
            (CompactionBounds, "must_discard", lambda _: lambda self, member: False),
        ),
        story=an_addition_is_appended_and_not_committed,
        note="L6 is off, too: a learner that is not clean below the bounds discards its log",
    ),
    Mutation(
        "bounds-told-until-known",
        "A leader tells the bounds until each member says that it knows them (L5)",
        off((CompactionBounds, "to_be_told", _told_on_a_rise(by_each_leader=True))),
        story=a_follower_misses_that_the_bounds_rise,
    ),
    Mutation(
        "bounds-told-by-a-new-leader",
        "A new leader tells the bounds, even if they are the same (L4)",
        off((CompactionBounds, "to_be_told", _told_on_a_rise(by_each_leader=False))),
        story=a_new_leader_knows_bounds_that_a_follower_does_not,
        note="L5 is off, too, which is enough alone",
    ),
    Mutation(
        "reports-repeated",
        "A follower repeats its report, also if nothing has changed (section 2)",
        off(
            (BoundsExchange, "_is_report_due", _only_changes),
            (CompactionBounds, "bounds_received", _heard_in_silence),
        ),
        story=a_report_is_lost,
        note="to be told bounds that are known is no reason either, which is enough alone",
    ),
    Mutation(
        "all-but-the-newest-committed",
        "All configurations in a log but the newest are committed, also after a restart (L2, raft/rows.py)",
        off((CompactionBounds, "recompute", _least_of(_since_the_committed))),
        story=a_leader_starts_again_with_a_removal_that_is_not_committed,
    ),
    Mutation(
        "bounds-never-lowered",
        "A replica takes the higher of the bounds that it has and is told (F1)",
        off(
            (CompactionBounds, "bounds_received", _takes_any),
            (DurableBounds, "raise_to", _as_told),
            (Bounds, "apply", _unchecked),
        ),
        story=a_new_leader_knows_older_bounds_than_a_follower,
    ),
    Mutation(
        "lost-log-forgets-its-bounds",
        "A log that is lost is begun anew under another incarnation, of which nothing is known (F4)",
        off((LogOpener, "_become_another", lambda _: lambda self, key: None)),
        story=a_cleaned_log_is_lost_and_copied_again,
    ),
    Mutation(
        "free-of-transactional-data",
        "MXFO says that no data carry the transactional bit, not that the outcome is known (section 1)",
        off((CompactionBounds, "cleaned_below", _outcome_is_enough)),
        story=a_transaction_is_over_and_a_member_is_not_cleaned,
    ),
    Mutation(
        "own-values-are-its-own",
        "A replica never raises its own MCCO and MXFO because it is told the bounds (F2)",
        off(
            (CompactionBounds, "bounds_received", _raises_its_own),
            (compaction_bounds, "membership_seed", _by_offsets_alone),
        ),
        story=bounds_reach_who_is_back_before_it_reports,
        note="F5 is off, too: by the offsets alone, the leader cannot tell such a log from a copy",
    ),
)
