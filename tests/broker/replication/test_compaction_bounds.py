"""Whose log is known to be clean because of how it began: F5, L6 and L7 of coordinated-compaction.md."""

from __future__ import annotations

from broker.replication.watermarks.membership_seed import UNSET_BOUNDS, Seed, membership_seed
from raft.types import Configuration, RemovalBounds, ReplicaId, Row, RowKind

A, B, C = (ReplicaId(node_id, b"%016d" % node_id, 0) for node_id in (1, 2, 3))
BOUNDS, LATER = RemovalBounds(50, 40), RemovalBounds(80, 70)


def row(term: int, *members: ReplicaId, bounds: RemovalBounds | None = None) -> Row:
    return Row(0, term, RowKind.CONFIGURATION, Configuration(members, ()), bounds)


FOUNDING = row(-1, A, B)
LEADER = Row(1, 5, RowKind.LEADER, None)


def test_a_founding_member_begins_with_nothing() -> None:
    assert membership_seed([FOUNDING, LEADER], A, -1) == Seed(UNSET_BOUNDS, True)


def test_a_member_that_is_added_copies_what_is_clean_below_the_bounds_in_its_row() -> None:
    rows = [FOUNDING, LEADER, row(5, A, B, C, bounds=BOUNDS)]
    assert membership_seed(rows, C, 5) == Seed(BOUNDS, True)
    assert membership_seed(rows, C, 6) == Seed(BOUNDS, True)
    assert membership_seed(rows, A, -1) == Seed(UNSET_BOUNDS, True)


def test_a_log_that_was_begun_before_its_row_is_no_copy() -> None:
    """It was filled under a membership that was lost, or that is over."""
    rows = [FOUNDING, LEADER, row(7, A, B, C, bounds=BOUNDS)]
    assert not membership_seed(rows, C, 6).is_begun_here
    assert not membership_seed(rows, C, -1).is_begun_here


def test_a_log_from_an_earlier_membership_is_no_copy() -> None:
    rows = [
        FOUNDING,
        row(5, A, B, C, bounds=BOUNDS),
        row(6, A, B, bounds=BOUNDS),
        row(6, A, B, C, bounds=LATER),
    ]
    assert not membership_seed(rows, C, 5).is_begun_here
    # It may be from before the removal, or from after it.
    assert not membership_seed(rows, C, 6).is_begun_here
    assert membership_seed(rows, C, 7) == Seed(LATER, True)


def test_a_log_from_before_is_no_copy_if_its_row_has_no_bounds() -> None:
    """Whoever appended the row may not have heard of the bounds."""
    rows = [FOUNDING, LEADER, row(7, A, B, C, bounds=UNSET_BOUNDS)]
    assert membership_seed(rows, C, -1) == Seed(UNSET_BOUNDS, False)
    assert membership_seed(rows, C, 7) == Seed(UNSET_BOUNDS, True)


def test_a_later_change_of_others_is_not_its_own_row() -> None:
    rows = [FOUNDING, row(5, A, B, C, bounds=BOUNDS), row(9, A, C, bounds=LATER)]
    assert membership_seed(rows, C, 5) == Seed(BOUNDS, True)
