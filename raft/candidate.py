"""Candidate: the votes for it. A pre-candidate counts pre-votes likewise, and is still a follower."""

from __future__ import annotations

from typing import TYPE_CHECKING

from raft.types import ReplicaId, Watermarks

if TYPE_CHECKING:
    from raft.state import GroupState


class Candidate:
    """The votes, or pre-votes, for this replica in one election."""

    __slots__ = ("_state", "granted")

    def __init__(self, state: GroupState) -> None:
        self._state = state
        #: Voter that granted -> its watermarks. Keys are voters of the newest configuration.
        self.granted: dict[ReplicaId, Watermarks] = {}

    def count_vote(self, voter: ReplicaId, watermarks: Watermarks) -> bool:
        """Returns whether the candidate has a majority now."""
        self.granted[voter] = watermarks
        return self.has_majority

    @property
    def has_majority(self) -> bool:
        return len(self.granted) > len(self._state.configuration.voters) // 2

    def highest_watermarks(self) -> Watermarks:
        """The maximum over the voters that granted and this replica."""
        watermarks = self._state.watermarks
        for granted in self.granted.values():
            watermarks = watermarks.maximum(granted)
        return watermarks
