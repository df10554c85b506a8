"""MTRO, MXRO, MCCO and MXFO never go down under one incarnation, over restarts and leaders (coordinated-compaction.md,
section 5, invariant 4), and no replica is clean beyond what is committed (section 1).

What was durable once has to be there again after any crash. What was only in memory may be lost: it was not reported
(F3).
"""

from __future__ import annotations

from collections.abc import Callable

from raft.types import ReplicaId
from storage.journal_records import UNSET, Bounds
from storage.log_types import GroupKey

#: The fields of `Bounds` that are looked at here: the log start has an invariant of its own.
NAMES = ("mtro", "mxro", "mcco", "mxfo")


class BoundsNeverFall:
    def __init__(self) -> None:
        self._durable: dict[tuple[GroupKey, ReplicaId], Bounds] = {}
        #: By group: the highest of each that any replica had at any time.
        self._highest: dict[GroupKey, Bounds] = {}

    def highest(self, key: GroupKey) -> Bounds:
        return self._highest.get(key, Bounds(key))

    def note(self, key: GroupKey, bounds: Bounds) -> None:
        """Some replica has these."""
        highest = self.highest(key)
        self._highest[key] = Bounds(key, *(max(pair) for pair in zip(highest[1:], bounds[1:], strict=True)))

    def check(
        self,
        key: GroupKey,
        identity: ReplicaId,
        bounds: Bounds,
        committed_end: int,
        durable: Callable[[], Bounds | None],
    ) -> None:
        """`bounds`: as the replica has them in memory. `committed_end`: of the group, whoever knows it. `durable`: as
        its disk surely keeps them; asked for only where something has changed."""
        known = self._durable.get((key, identity), Bounds(key))
        for name in NAMES:
            before, now = getattr(known, name), getattr(bounds, name)
            assert now >= before, f"{name} of {identity} in {key} falls from {before} to {now}"
            assert now <= max(committed_end, UNSET), (
                f"{name} of {identity} in {key} is {now}, committed is all below {committed_end}"
            )
        if bounds[2:] != known[2:]:
            self.note(key, bounds)
            found = durable()
            if found is not None:
                self._durable[key, identity] = found
