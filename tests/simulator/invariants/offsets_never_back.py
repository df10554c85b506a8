"""Committed offsets are linearizable, and who commits them only goes on: what is fetched is never below what was
acknowledged, or told to anybody, before it was asked, and it is something that somebody sent. So no commit is lost, no
answer taken back, and nobody commits over a successor (a generation that has ended is fenced)."""

from __future__ import annotations

from typing import NamedTuple

NOTHING = -1
"""As OffsetFetch says that nothing was committed."""


class Committed(NamedTuple):
    """Whose offset of what."""

    group: str
    topic: str
    partition: int


class OffsetsNeverBack:
    def __init__(self) -> None:
        self._floors: dict[Committed, int] = {}
        self._sent: dict[Committed, set[int]] = {}

    @property
    def places(self) -> list[Committed]:
        """Of which something was sent."""
        return list(self._sent)

    def sent(self, place: Committed, offset: int) -> None:
        """A commit is on its way."""
        self._sent.setdefault(place, set()).add(offset)

    def acknowledged(self, place: Committed, floor: int, offset: int) -> None:
        """`floor` is of the moment at which it was sent. Whoever may commit goes on from what it fetched; what is not
        above the floor comes from somebody whose generation had ended."""
        assert offset > floor, f"{place}: {offset} is taken, acknowledged or told before was {floor}"
        self._floors[place] = max(self.floor(place), offset)

    def floor(self, place: Committed) -> int:
        """What a fetch that is sent now must not be answered below, and a commit must be above."""
        return self._floors.get(place, NOTHING)

    def fetched(self, place: Committed, floor: int, offset: int) -> None:
        """`floor` is of the moment of the request."""
        assert offset >= floor, f"{place} is {offset}, acknowledged or told before was {floor}"
        assert offset == NOTHING or offset in self._sent.get(place, ()), f"{place}: nobody committed {offset}"
        self._floors[place] = max(self.floor(place), offset)
