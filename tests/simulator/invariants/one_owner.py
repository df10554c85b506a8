"""A generation of a group gives each partition to one member at most (KIP-62): who was told so works on it and commits,
until it hears of the next generation. A number that is given out twice would make two owners of one partition."""

from __future__ import annotations


class OneOwner:
    def __init__(self) -> None:
        #: (group, generation, topic, partition) -> member id.
        self._owners: dict[tuple[str, int, str, int], str] = {}

    def owns(self, group: str, generation: int, topic: str, partition: int, member_id: str) -> None:
        """A coordinator told this member that the partition is its own."""
        owner = self._owners.setdefault((group, generation, topic, partition), member_id)
        assert owner == member_id, (
            f"{group}, generation {generation}: {topic}-{partition} belongs to {owner} and to {member_id}"
        )
