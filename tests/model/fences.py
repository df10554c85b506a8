"""Each switch: the rule that it turns off, where the model looks for the damage, and who shows the same in the
simulator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests.model.checker import Result, explore
from tests.model.properties import (
    StateProperty,
    divergence,
    false_claim,
    high_bound,
    stagnation,
    stagnation_after_a_change_of_leaders,
)
from tests.model.rules import Rules
from tests.model.world import World
from tests.model.worlds import (
    ADDED_AGAIN,
    ADDED_AGAIN_LIVE,
    ADDITION,
    BEGUN_ANEW,
    LOSSES,
    LOST_LOG,
    MEMBERS,
    NEVER_CLEANED,
    POWER,
    REMOVAL,
    RESTART,
    STALE_LEADER,
    UNCOMMITTED,
)


@dataclass(frozen=True)
class Fence:
    """One row of the table. `off`: fields of `Rules`."""

    name: str
    rule: str
    off: tuple[str, ...]
    world: World
    #: A row of tests/simulation/MUTATIONS.md.
    row: str
    properties: Sequence[StateProperty] = (divergence,)
    #: Whether a bound that falls is looked for, too.
    may_fall: bool = True
    #: Whether the model finds nothing, because other rules are enough.
    is_covered: bool = False
    note: str = ""

    def search(self) -> Result:
        rules = Rules(**dict.fromkeys(self.off, False))
        return explore(self.world, rules, self.properties, may_fall=self.may_fall)


FENCES = (
    Fence(
        "guard-below-bound",
        "A guard is dropped only below MTRO (MXRO): section 1",
        ("guard_below_bound",),
        MEMBERS,
        "tombstones-below-mtro",
        note="of markers: `markers-below-mxro`",
    ),
    Fence(
        "clean-below-high-watermark",
        "MCCO never exceeds the high watermark: section 1",
        ("clean_below_high_watermark",),
        UNCOMMITTED,
        "compacted-below-the-high-watermark",
    ),
    Fence(
        "clean-means-old-is-gone",
        "MXFO means that no data carry the bit, not that the outcome is known: section 1",
        ("clean_means_old_is_gone",),
        ADDITION,
        "free-of-transactional-data",
    ),
    Fence(
        "bounds-of-this-topic",
        "Bounds of another topic id are refused: F1",
        ("bounds_of_this_topic",),
        MEMBERS,
        "topic-id-in-messages",
        note="the product finds the group of any message by topic id in one place; the story shows it with appends",
    ),
    Fence(
        "bounds-never-fall",
        "A replica takes the higher of what it knows and is told: F1",
        ("bounds_never_fall",),
        MEMBERS,
        "bounds-never-lowered",
        properties=(),
        may_fall=False,
    ),
    Fence(
        "own-value-is-its-own",
        "BOUNDS never raise a replica's own MCCO (MXFO): F2",
        ("own_value_is_its_own",),
        ADDED_AGAIN,
        "own-values-are-its-own",
        properties=(false_claim,),
    ),
    Fence(
        "reported-when-durable",
        "A value is durable before it is reported: F3",
        ("reported_when_durable",),
        POWER,
        "told-when-durable",
        properties=(high_bound,),
    ),
    Fence(
        "flag-after-pass",
        "The rewritten segments are durable before MCCO is: F3",
        ("flag_after_pass",),
        POWER,
        "checkpoint-after-the-pass",
    ),
    Fence(
        "lost-log-is-another",
        "A log that has lost its end is begun anew under another incarnation: F4",
        ("lost_log_is_another",),
        LOST_LOG,
        "lost-log-forgets-its-bounds",
    ),
    Fence(
        "begun-under-its-row",
        "A log from before its member was added is no copy: F5",
        ("begun_under_its_row",),
        ADDED_AGAIN,
        "log-of-this-membership",
    ),
    Fence(
        "begun-without-bound",
        "... also if neither the row nor the leader has a bound: F5, L6",
        ("begun_without_bound",),
        ADDED_AGAIN,
        "judged-without-bounds",
        note="found by this model in the product",
    ),
    Fence(
        "report-of-this-incarnation",
        "A report counts for the incarnation that built it: L1",
        ("report_of_this_incarnation",),
        BEGUN_ANEW,
        "report-of-this-incarnation",
        properties=(high_bound,),
    ),
    Fence(
        "removal-when-committed",
        "A member that is removed counts until that is committed: L2",
        ("removal_when_committed",),
        REMOVAL,
        "removal-counts-when-committed",
    ),
    Fence(
        "addition-when-appended",
        "A member that is added counts when that is appended: L2",
        ("addition_when_appended",),
        ADDITION,
        "addition-counts-when-appended",
    ),
    Fence(
        "older-rows-are-committed",
        "After a restart, a leader takes only its newest configuration for uncommitted: L2",
        ("older_rows_are_committed",),
        RESTART,
        "all-but-the-newest-committed",
        properties=(high_bound,),
    ),
    Fence(
        "silent-member-blocks",
        "A member that has not reported blocks every rise: L3",
        ("silent_member_blocks",),
        MEMBERS,
        "silent-member-blocks",
    ),
    Fence(
        "told-until-known",
        "A leader tells the bound to each member until that says that it knows it: L5",
        ("told_until_known",),
        LOSSES,
        "bounds-told-until-known",
        properties=(stagnation,),
    ),
    Fence(
        "new-leader-tells",
        "A new leader tells the bound, even if it has not risen: L4",
        ("new_leader_tells", "told_until_known"),
        LOSSES,
        "bounds-told-by-a-new-leader",
        properties=(stagnation_after_a_change_of_leaders,),
        note="L5 is off, too, which is enough alone",
    ),
    Fence(
        "copy-before-vote",
        "A learner votes only when its log is a legitimate copy: L6",
        ("copy_before_vote",),
        ADDED_AGAIN,
        "no-copy-no-vote",
    ),
    Fence(
        "no-copy-is-discarded",
        "A learner whose log is no legitimate copy discards it: L6",
        ("no_copy_is_discarded",),
        ADDED_AGAIN_LIVE,
        "no-copy-discards",
        properties=(stagnation,),
    ),
    Fence(
        "row-has-bound",
        "The row that adds a member holds the bound of that moment: L7",
        ("row_has_bound",),
        NEVER_CLEANED,
        "bounds-in-the-row",
        properties=(stagnation,),
    ),
    Fence(
        "report-of-this-term",
        "A report counts in the term in which it was built: L1",
        ("report_of_this_term",),
        STALE_LEADER,
        "",
        note="in the product a member reports only to the leader that it follows, so this is never asked",
    ),
    Fence(
        "bounds-of-this-term",
        "Bounds of an older leader are refused: F1",
        ("bounds_of_this_term",),
        STALE_LEADER,
        "",
        is_covered=True,
        note="L1 is enough: no older leader has bounds that are not true",
    ),
    Fence(
        "reports-and-bounds-of-any-term",
        "... both",
        ("report_of_this_term", "bounds_of_this_term"),
        STALE_LEADER,
        "",
    ),
)
