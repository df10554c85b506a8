"""Offsets as plain values: what Spark keeps in its checkpoint, and the arithmetic on it. No cluster is asked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

Place = tuple[str, int]
"""Topic and partition."""
OffsetMap = dict[Place, int]

# No topic can have this name, so it cannot collide with one.
_IDS_KEY = "#topic-ids"


@dataclass(frozen=True, slots=True)
class Offsets:
    """The next offset to read of each partition, and the id of each topic that these offsets belong to.

    The topic's id (KIP-516) tells a topic that was deleted and created again from the one before, also when the new
    one has grown past the old one's offsets.
    """

    next: OffsetMap
    topic_ids: dict[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """As Spark stores it: the official connector's form and the topics' ids. Equal offsets give equal text."""
        return {**by_topic(self.next), _IDS_KEY: dict(sorted(self.topic_ids.items()))}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Offsets:
        places = {topic: value for topic, value in stored.items() if topic != _IDS_KEY}
        return cls(from_topics(places), dict(stored.get(_IDS_KEY, {})))


@dataclass(frozen=True, slots=True)
class Range:
    """Offsets of one partition: start inclusive, end exclusive."""

    topic: str
    partition: int
    start: int
    end: int


def by_topic(offsets: OffsetMap) -> dict[str, dict[str, int]]:
    """`{"topic": {"0": 12}}`, sorted."""
    nested: dict[str, dict[str, int]] = {}
    for topic, partition in sorted(offsets):
        nested.setdefault(topic, {})[str(partition)] = offsets[topic, partition]
    return nested


def from_topics(nested: Mapping[str, Mapping[str, int]]) -> OffsetMap:
    return {
        (topic, int(partition)): offset
        for topic, partitions in nested.items()
        for partition, offset in partitions.items()
    }


def limited(start: OffsetMap, end: OffsetMap, max_offsets: int) -> OffsetMap:
    """Ends that lie at most about `max_offsets` after the starts, shared out in proportion to what each partition has.

    A partition with little gets at least one offset, so that it is never starved; the sum can exceed the limit by
    the number of such partitions. The official connector shares out in the same way.
    """
    sizes = {place: max(0, offset - start[place]) for place, offset in end.items()}
    total = sum(sizes.values())
    if total <= max_offsets:
        return dict(end)
    shares = {place: max(1, max_offsets * size // total) if size else 0 for place, size in sizes.items()}
    return {
        place: start[place] + min(shares[place], sizes[place]) if sizes[place] else offset
        for place, offset in end.items()
    }


def split(ranges: Iterable[Range], min_partitions: int | None) -> list[Range]:
    """The ranges that are not empty, the larger ones cut so that there are about `min_partitions`."""
    whole = [each for each in ranges if each.end > each.start]
    if min_partitions is None or len(whole) >= min_partitions:
        return whole
    total = sum(each.end - each.start for each in whole)
    pieces = []
    for each in whole:
        size = each.end - each.start
        count = min(size, max(1, round(min_partitions * size / total)))
        cuts = [each.start + size * n // count for n in range(count + 1)]
        pieces += [Range(each.topic, each.partition, start, end) for start, end in pairwise(cuts)]
    return pieces


def described(ranges: Iterable[Range]) -> str:
    """For messages: `orders-0 offsets 5 to 8, ...`; the last one is named, too."""
    return ", ".join(
        f"{each.topic}-{each.partition} offsets {each.start} to {each.end - 1}" for each in ranges
    )
