"""No two members of a consumer group work on one partition at a time (KIP-848): whoever gets it gets it after the one
before has said that it gave it up, or after its session, of which it knows when it ends."""

from __future__ import annotations

Place = tuple[str, str, int]
"""(group, topic, partition)"""


class OneWorker:
    def __init__(self) -> None:
        self._workers: dict[Place, str] = {}

    def takes(self, place: Place, member_id: str) -> None:
        """It was told that the partition is its own, and begins."""
        worker = self._workers.setdefault(place, member_id)
        assert worker == member_id, f"{place}: {member_id} begins while {worker} works on it"

    def gives_up(self, place: Place, member_id: str) -> None:
        """It has stopped."""
        assert self._workers.pop(place) == member_id
