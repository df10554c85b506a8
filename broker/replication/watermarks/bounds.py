"""The bounds that the journal keeps of each replica: log start, MTRO, MXRO, MCCO, MXFO, and what belongs to them.

They are one record (`storage.journal_records.Bounds`), which replaces the one before it as a whole. This module is the
only place that writes it: it takes what the journal holds, raises one field and leaves the others as they are.
(The names are those of coordinated-compaction.md, section 1.)

Nothing is kept here. The journal's state is the one copy, and the two events that change more than one field are its
own:

- A raised incarnation discards the log and, in the journal, all of its bounds (`storage.journal_records.Incarnation`).
- An installed log begins above everything that the replaced one had committed, and stores nothing below its start. So
  the log start rises to it (`raise_log_start`), and what the others say of the offsets below them still holds.
"""

from __future__ import annotations

from storage.journal import Journal
from storage.journal_records import Bounds
from storage.log_types import GroupKey


class DurableBounds:
    """The bounds of all replicas of one data directory."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def of(self, key: GroupKey) -> Bounds:
        """What the journal holds, perhaps not durable yet. Nothing recorded: every bound is unset."""
        state = self._journal.state(key)
        return Bounds(key) if state is None or state.bounds is None else state.bounds

    def raise_log_start(self, key: GroupKey, offset: int) -> None:
        """Append the raised log start to the journal. It is durable with the next flush of the journal."""
        bounds = self.of(key)
        assert offset > bounds.log_start, f"the log start of {key} is {bounds.log_start}, not below {offset}"
        self._journal.append(bounds._replace(log_start=offset))

    def raise_to(self, bounds: Bounds) -> Bounds | None:
        """As `raise_log_start`, for every field that is higher than what is recorded. Returns all that is recorded
        then; None: nothing was higher."""
        recorded = self.of(bounds.group)
        raised = Bounds(bounds.group, *map(max, recorded[1:], bounds[1:]))
        if raised == recorded:
            return None
        self._journal.append(raised)
        return raised
