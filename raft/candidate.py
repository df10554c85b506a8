"""Candidate: the votes for it. A pre-candidate counts them likewise, and is a follower meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING

from raft.types import ReplicaId, Watermarks

if TYPE_CHECKING:
    from raft.state import GroupState


class Candidate:
    """Who would have this replica lead, in one round of questions."""

    __slots__ = ("_state", "granted")

    def __init__(self, state: GroupState) -> None:
        self._state = state
        #: Who granted, with its watermarks. Keys are voters of the newest configuration.
        self.granted: dict[ReplicaId, Watermarks] = {}

    def count_vote(self, voter: ReplicaId, watermarks: Watermarks) -> bool:
        """Whether that makes a majority."""
        self.granted[voter] = watermarks
        return self.has_majority

    @property
    def has_majority(self) -> bool:
        return len(self.granted) > len(self._state.configuration.voters) // 2

    def highest_watermarks(self) -> Watermarks:
        """Of those who granted and of this replica."""
        watermarks = self._state.watermarks
        for granted in self.granted.values():
            watermarks = watermarks.maximum(granted)
        return watermarks
