"""The fences, each a switch (coordinated-compaction.md, sections 1 and 2)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Rules:
    """True: the rule holds."""

    guard_below_bound: bool = True
    """Section 1: a guard is dropped only below MTRO (MXRO)."""
    clean_below_high_watermark: bool = True
    """Section 1: MCCO never exceeds the high watermark."""
    clean_means_old_is_gone: bool = True
    """Section 1: MXFO rises when the transactional bit is gone, not when the outcome is known."""
    bounds_of_this_topic: bool = True
    """F1: bounds of another topic id are refused."""
    bounds_of_this_term: bool = True
    """F1: bounds of an older leader are refused."""
    bounds_never_fall: bool = True
    """F1: a follower takes the maximum of what it knows and what it is told."""
    own_value_is_its_own: bool = True
    """F2: bounds never raise a replica's own MCCO (MXFO)."""
    reported_when_durable: bool = True
    """F3: a value is durable before it is reported."""
    flag_after_pass: bool = True
    """F3: the rewritten segments are durable before MCCO is."""
    lost_log_is_another: bool = True
    """F4: a log that has lost its end is discarded under a new incarnation."""
    begun_under_its_row: bool = True
    """F5: a log from before its member was added is no copy."""
    begun_without_bound: bool = True
    """F5, L6: ... also if the leader that adds or judges it knows no bound. Another replica may know one."""
    report_of_this_term: bool = True
    """L1: a report counts in the term in which it was built."""
    report_of_this_incarnation: bool = True
    """L1: a report counts for the incarnation that built it."""
    removal_when_committed: bool = True
    """L2: a member that is removed counts until that is committed."""
    addition_when_appended: bool = True
    """L2: a member that is added counts when that is appended."""
    older_rows_are_committed: bool = True
    """L2: a leader that has started again takes only its newest configuration for uncommitted."""
    silent_member_blocks: bool = True
    """L3: a member that has not reported blocks the rise."""
    starts_from_known: bool = True
    """L4: a new leader starts from the bound that it knows."""
    new_leader_tells: bool = True
    """L4: a new leader tells the bound, even if it has not risen."""
    told_until_known: bool = True
    """L5: a leader tells the bound to each member until that says that it knows it."""
    copy_before_vote: bool = True
    """L6: a learner votes only when its log is a legitimate copy."""
    no_copy_is_discarded: bool = True
    """L6: a learner whose log is no legitimate copy discards it."""
    row_has_bound: bool = True
    """L7: the row that adds a member holds the bound of that moment."""


ALL_ON = Rules()
