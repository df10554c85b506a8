"""Which members keep a removal bound of their group from rising, and since when. It is shown to users, and decides
nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from raft.types import RemovalBounds, ReplicaId
from storage.journal_records import UNSET


class Pin(NamedTuple):
    cleaned_end: int | None
    """The member is cleaned below this offset. None: it is not known, so nothing may rise."""
    since: float
    """Loop time, seconds. The member has stood there, and kept others waiting, since then."""


class Pins:
    """Of one leader, in one term."""

    __slots__ = ("of_markers", "of_tombstones")

    def __init__(self) -> None:
        #: Of MTRO, and of MXRO. A member that moves on and still keeps others waiting has a new pin.
        self.of_tombstones: dict[ReplicaId, Pin] = {}
        self.of_markers: dict[ReplicaId, Pin] = {}

    def update(self, cleaned: Mapping[ReplicaId, RemovalBounds | None], now: float) -> None:
        """`cleaned`: of all members, what they are cleaned below. None: unreported, or no copy of the group's log."""
        ends = {member: None if each is None else each.mtro for member, each in cleaned.items()}
        self.of_tombstones = _pins(self.of_tombstones, ends, now)
        ends = {member: None if each is None else each.mxro for member, each in cleaned.items()}
        self.of_markers = _pins(self.of_markers, ends, now)


def _pins(
    before: Mapping[ReplicaId, Pin], ends: Mapping[ReplicaId, int | None], now: float
) -> dict[ReplicaId, Pin]:
    known = [end for end in ends.values() if end is not None]
    highest = max(known, default=UNSET)
    # Who is unknown blocks every rise. If all are known, the least ones do, unless all of them stand at the same place.
    lowest = None if len(known) < len(ends) else min(known, default=UNSET)
    if lowest == highest:
        return {}
    pins = {}
    for member, end in ends.items():
        if end == lowest:
            old = before.get(member)
            pins[member] = old if old is not None and old.cleaned_end == end else Pin(end, now)
    return pins
