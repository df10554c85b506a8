"""What a member's log is known to be clean below because of how it began: rules F5, L6 and L7 of
coordinated-compaction.md.

A member that is added starts empty. It copies the logs of leaders, each of which is cleaned at least up to the bounds
that the group had when the copying began. The row that names the member holds the bounds of then.

That is true only of a log that was begun under this row. *Schedule:* B is away, a tombstone is cleaned on A and C, B
is removed, the bounds jump, the tombstone goes. B is added again, with its old log, in which the deleted value still
is. So a member tells the term of the leader that sent its first entry. If that is older than the row, the log is from
before. That holds also if the row has no bounds: the leader that appended it may know less than others.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from raft.types import RemovalBounds, ReplicaId, Row

UNSET_BOUNDS = RemovalBounds(-1, -1)


class Seed(NamedTuple):
    bounds: RemovalBounds
    """Those in the row."""
    is_begun_here: bool
    """False: the log may be from before the member was added."""


def membership_seed(rows: Iterable[Row], member: ReplicaId, copied_in_term: int) -> Seed:
    """By the lineage of a leader, whose member this is; `copied_in_term`: what the member says, -1 if its log was
    founded with the group.

    The comparison is safe, not exact: a log that was begun in the term in which another membership of the same identity
    ended counts as one from before.
    """
    named: Row | None = None
    last_end_term = -2
    for row in rows:
        if row.configuration is None:
            continue
        if not row.configuration.names(member):
            if named is not None:
                last_end_term = row.term
            named = None
        elif named is None:
            named = row
    if named is None or named.removal_bounds is None:
        return Seed(UNSET_BOUNDS, True)  # a founding member
    return Seed(named.removal_bounds, copied_in_term >= named.term and copied_in_term > last_end_term)
