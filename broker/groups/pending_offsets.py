"""Offsets that open transactions commit, in one partition of `__consumer_offsets`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, KeysView, Mapping
from typing import TypeAlias

from broker.coordinator.memory import text_size
from broker.groups.commit import Place
from protocol.group_records import OffsetCommitValue

#: What a pending offset takes in memory beside its texts, measured: 640 bytes among many of one group, 1,310 alone.
PENDING_BYTES = 1300

#: (group id, place)
_At: TypeAlias = tuple[str, Place]


class PendingOffsets:
    """By group, place and producer. Those of one place are in the order in which they were written.

    Invariants: no dict in it is empty. `size_bytes` is the size of all of them (broker.coordinator.memory).
    """

    def __init__(self) -> None:
        self._groups: dict[str, dict[Place, dict[int, OffsetCommitValue]]] = {}
        #: Producer id -> group id -> the places where it has offsets.
        self._places_of: dict[int, dict[str, dict[Place, None]]] = {}
        self.size_bytes = 0

    # -- reading -----------------------------------------------------------------------------------------

    @property
    def group_ids(self) -> KeysView[str]:
        return self._groups.keys()

    def has_group(self, group_id: str) -> bool:
        return group_id in self._groups

    def has_place(self, group_id: str, place: Place) -> bool:
        return place in self._groups.get(group_id, ())

    def places(self, group_id: str) -> frozenset[Place]:
        return frozenset(self._groups.get(group_id, ()))

    def get(self, group_id: str, place: Place, producer_id: int) -> OffsetCommitValue | None:
        return self._groups.get(group_id, {}).get(place, {}).get(producer_id)

    def of_group(self, group_id: str) -> Iterator[tuple[Place, OffsetCommitValue]]:
        """A place comes as often as it has offsets."""
        for place, values in self._groups.get(group_id, {}).items():
            for value in values.values():
                yield place, value

    def counts_of(self, producer_id: int) -> Mapping[str, int]:
        """Group id -> how many offsets of this producer it has."""
        return {group_id: len(places) for group_id, places in self._places_of.get(producer_id, {}).items()}

    # -- changes -----------------------------------------------------------------------------------------

    def add(self, producer_id: int, group_id: str, place: Place, value: OffsetCommitValue) -> None:
        """In place of what the producer has there."""
        self.drop(producer_id, group_id, place)
        self._groups.setdefault(group_id, {}).setdefault(place, {})[producer_id] = value
        self._places_of.setdefault(producer_id, {}).setdefault(group_id, {})[place] = None
        self.size_bytes += pending_size(group_id, place, value.metadata)

    def drop(self, producer_id: int, group_id: str, place: Place) -> OffsetCommitValue | None:
        """Returns what the producer had there."""
        values = self._groups.get(group_id, {}).get(place, {})
        value = values.pop(producer_id, None)
        if value is None:
            return None
        self.size_bytes -= pending_size(group_id, place, value.metadata)
        if not values:
            del self._groups[group_id][place]
            if not self._groups[group_id]:
                del self._groups[group_id]
        groups = self._places_of[producer_id]
        del groups[group_id][place]
        if not groups[group_id]:
            del groups[group_id]
            if not groups:
                del self._places_of[producer_id]
        return value

    def producers_at(self, group_id: str, place: Place) -> list[int]:
        """Who has an offset there, in the order in which these were written."""
        return list(self._groups.get(group_id, {}).get(place, ()))

    def places_of(self, producer_id: int) -> Iterable[_At]:
        """A copy."""
        groups = self._places_of.get(producer_id, {})
        return [(group_id, place) for group_id, places in groups.items() for place in places]


def pending_size(group_id: str, place: Place, metadata: str) -> int:
    return PENDING_BYTES + text_size(group_id) + text_size(place.topic) + text_size(metadata)
