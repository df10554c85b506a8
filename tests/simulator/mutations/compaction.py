"""What compaction may remove, and when (coordinated-compaction.md, sections 1 to 3)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from broker.compaction import facts, worker
from broker.compaction.worker import CompactionWorker
from broker.replication.replica import Replica
from broker.replication.watermarks import compaction_bounds
from broker.replication.watermarks.bounds_exchange import BoundsExchange
from broker.replication.watermarks.compaction_bounds import CleanedReport, CompactionBounds
from broker.replication.watermarks.membership_seed import UNSET_BOUNDS, Seed
from raft.group import Group
from raft.types import ReplicaId
from storage import log
from storage.compaction.aborted_data import AbortedData
from storage.compaction.plan import LogFacts
from storage.journal_records import Bounds
from storage.segment_swap import SegmentBuild
from tests.simulator.disk import MemoryDisk
from tests.simulator.memory_file import MemoryFile
from tests.simulator.mutations.compaction_stories import (
    a_follower_misses_that_the_bounds_rise,
    a_new_leader_knows_bounds_that_a_follower_does_not,
    a_removal_is_appended_and_lost,
    a_removed_member_comes_back_with_its_log,
    a_report_comes_when_its_member_has_begun_anew,
    a_report_is_lost,
    an_addition_is_appended_and_not_committed,
    machines_lose_power_while_segments_are_taken_in_place,
)
from tests.simulator.mutations.kind import Mutation
from tests.simulator.mutations.switch import off, without_call

_EVERYWHERE = 2**62


def _with_rules(**rules: Any) -> Any:
    """The pass goes by other rules than the replica's."""

    def make(original: Any) -> Any:
        def changed(*args: Any, **kwargs: Any) -> Any:
            task = original(*args, **kwargs)
            return task._replace(rules=task.rules._replace(**rules))

        return changed

    return make


def _silent_members_are_left_out(original: Any) -> Any:
    """Who has not reported counts as cleaned as far as this leader is."""

    def report_of(self: CompactionBounds, member: Any) -> CleanedReport | None:
        return original(self, member) or self.report()

    return report_of


def _with_last_stable_offset_of_high_watermark(original: Any) -> Any:
    def changed(*args: Any, **kwargs: Any) -> LogFacts:
        log_facts: LogFacts = original(*args, **kwargs)
        return log_facts._replace(last_stable_offset=log_facts.high_watermark)

    return changed


def _every_log_was_begun_here(seed_of: Callable[..., Seed]) -> object:
    return lambda rows, member, copied_in_term: seed_of(rows, member, _EVERYWHERE)


def _without_bounds(seed_of: Callable[..., Seed]) -> object:
    return lambda *args: seed_of(*args)._replace(bounds=UNSET_BOUNDS)


def _before_the_flush(_: object) -> object:
    def persist(self: BoundsExchange, replica: Replica, bounds: Bounds) -> None:
        recorded = self._bounds.raise_to(bounds)
        if recorded is not None:
            self._persisted(replica, recorded)

    return persist


def _checkpoint_first(record: Callable[..., Any]) -> object:
    async def recorded(self: CompactionWorker, replica: Replica, end_offset: int) -> None:
        await record(self, replica, end_offset)
        replica.bounds.passed(end_offset, is_transaction_free=False)

    return recorded


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
            reports = {each: self.report_of(each) for each in members_of(self._replica.group)}
            cleaned = [report and self._cleaned(each, report) for each, report in reports.items()]
            known = [each for each in cleaned if each is not None]
            if len(known) == len(cleaned):
                self._raise(
                    mtro=min((each.mtro for each in known), default=-1),
                    mxro=min((each.mxro for each in known), default=-1),
                )

        return recompute

    return make


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


def _only_changes(is_report_due: Callable[..., bool]) -> object:
    def is_due(self: BoundsExchange, replica: Replica, leader: ReplicaId, now: float) -> bool:
        self._repeat_at[replica] = float("inf")
        return is_report_due(self, replica, leader, now)

    return is_due


MUTATIONS = (
    Mutation(
        "tombstones-below-mtro",
        "A tombstone goes only below MTRO: every member is cleaned there (section 3)",
        off((worker, "cleaning_task", _with_rules(max_tombstone_remove_offset=_EVERYWHERE))),
        mix=None,
    ),
    Mutation(
        "markers-below-mxro",
        "A transaction marker goes only below MXRO: no member has transactional data there (section 3)",
        off((worker, "cleaning_task", _with_rules(max_transaction_remove_offset=_EVERYWHERE))),
        mix=None,
        has_transactions=True,
    ),
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
        story=a_removed_member_comes_back_with_its_log,
        note="a property: without it the member never votes",
    ),
    Mutation(
        "compacted-below-last-stable-offset",
        "Only what lies wholly below the last stable offset is compacted (section 3)",
        off((worker, "log_facts", _with_last_stable_offset_of_high_watermark)),
        mix=None,
        has_transactions=True,
    ),
    Mutation(
        "aborted-data-supersedes-nothing",
        "The data of aborted transactions never enters the key map (section 3)",
        off((AbortedData, "covers", lambda _: lambda self, header: False)),
        mix=None,
        has_transactions=True,
    ),
    Mutation(
        "remembered-batches-stay",
        "The batches that are remembered of active producers stay, emptied (section 3)",
        off((facts, "last_offsets", lambda _: lambda states, end_offset: frozenset())),
        mix=None,
    ),
    Mutation(
        "told-when-durable",
        "MCCO, MXFO, MTRO and MXRO are durable before anybody hears of them (F3)",
        off((BoundsExchange, "persist", _before_the_flush)),
        mix=None,
    ),
    Mutation(
        "checkpoint-after-the-pass",
        "MCCO is raised when all segments of a pass are in place (F3)",
        off((CompactionWorker, "_record_rewriting", _checkpoint_first)),
        story=machines_lose_power_while_segments_are_taken_in_place,
    ),
    Mutation(
        "built-segment-durable",
        "The segment that compaction has built is durable before it takes the place of others (section 3)",
        without_call(MemoryFile, "flush", SegmentBuild, "finish"),
        story=machines_lose_power_while_segments_are_taken_in_place,
    ),
    Mutation(
        "built-segment-named",
        "... and so are the names in its folder",
        without_call(MemoryDisk, "flush_directory", SegmentBuild, "finish"),
        story=machines_lose_power_while_segments_are_taken_in_place,
    ),
    Mutation(
        "swap-decided-durably",
        "That a built segment counts is durable before the old ones go (storage/segment_swap.py)",
        without_call(MemoryDisk, "flush_directory", log, "commit_swap"),
        story=machines_lose_power_while_segments_are_taken_in_place,
        bound=120,
    ),
    Mutation(
        "replaced-segments-gone",
        "Replaced segments are gone durably before the built one has its name (storage/segment_swap.py)",
        without_call(MemoryDisk, "flush_directory", log, "finish_swap"),
        story=machines_lose_power_while_segments_are_taken_in_place,
    ),
    Mutation(
        "built-segment-in-place",
        "The built segment is durable in its place before its folder goes (storage/segment_swap.py)",
        without_call(MemoryDisk, "flush_together", log, "finish_swap"),
        story=machines_lose_power_while_segments_are_taken_in_place,
        bound=120,
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
        off((BoundsExchange, "_is_report_due", _only_changes)),
        story=a_report_is_lost,
    ),
)
