"""The assignors of the consumer protocol (KIP-848): `uniform` and `range`.

They are functions of their arguments alone, and never depend on the order of a set. The result names every member, also
one that gets no partition. They work in steps, because a thousand members with a thousand topics take some 0.4 s.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import islice
from uuid import UUID

Assignment = Mapping[UUID, frozenset[int]]
"""Topic id -> partitions. No topic without partitions."""

EMPTY: Assignment = {}

_Partition = tuple[UUID, int]
#: Topics of one member that are counted in one step.
_FEW = 100


@dataclass(frozen=True, slots=True)
class MemberSpec:
    """What an assignor knows about a member."""

    topics: Collection[UUID]
    """The topics that it is subscribed to and that exist."""
    instance_id: str | None = None
    target: Assignment | None = None
    """Its target by the last assignment."""


Members = Mapping[str, MemberSpec]
Result = Generator[None, None, dict[str, Assignment]]
Assignor = Callable[[Members, Mapping[UUID, int]], Result]


def assign_range(members: Members, partition_counts: Mapping[UUID, int]) -> Result:
    """Each topic by itself, in ranges of adjacent partitions. The first members get the longer ranges.

    Topics with the same number of partitions and the same subscribers are divided at the same places (co-partitioning).
    Static members come first, by instance id, so that they get the same partitions under a new member id.
    """
    ordered = sorted(members, key=lambda x: (members[x].instance_id is None, members[x].instance_id or "", x))
    subscribers = yield from _subscribers(members, ordered)
    result: dict[str, dict[UUID, frozenset[int]]] = {member_id: {} for member_id in members}
    for topic_id, member_ids in subscribers.items():
        yield
        least, longer = divmod(partition_counts[topic_id], len(member_ids))
        first = 0
        for position, member_id in enumerate(member_ids):
            end = first + least + (position < longer)
            if end > first:
                result[member_id][topic_id] = frozenset(range(first, end))
            first = end
    return dict(result)


def _subscribers(members: Members, ordered: Iterable[str]) -> Generator[None, None, dict[UUID, list[str]]]:
    """Topic -> the members that are subscribed to it, in this order."""
    subscribers: dict[UUID, list[str]] = {}
    for member_id in ordered:
        for count, topic_id in enumerate(members[member_id].topics):
            subscribers.setdefault(topic_id, []).append(member_id)
            if count % _FEW == 0:
                yield
    return subscribers


def assign_uniform(members: Members, partition_counts: Mapping[UUID, int]) -> Result:
    """Even over all topics together, with as few changes to the last target as possible.

    If all members subscribe to the same topics, the sizes of their shares differ by at most one, and no more partitions
    move than that takes. Otherwise no single partition could be moved to another subscriber to make the two more even.
    """
    if not members:
        return {}
    first = next(iter(members.values())).topics
    for member in members.values():
        yield
        if member.topics is not first and frozenset(member.topics) != frozenset(first):
            return (yield from _uniform_different_topics(members, partition_counts))
    return (
        yield from _uniform_same_topics(members, {topic_id: partition_counts[topic_id] for topic_id in first})
    )


def _uniform_same_topics(members: Members, partition_counts: Mapping[UUID, int]) -> Result:
    """Every member keeps up to its quota of its last target. The other partitions go to members below their quota."""
    least, longer = divmod(sum(partition_counts.values()), len(members))
    kept: dict[str, list[_Partition]] = {}
    free = {topic_id: set(range(count)) for topic_id, count in partition_counts.items()}
    for member_id in sorted(members):
        owned: list[_Partition] = []
        kept[member_id] = owned
        for topic_id, partition in _partitions(members[member_id].target):
            if partition in free.get(topic_id, ()):
                free[topic_id].remove(partition)  # No partition twice, whatever the last target says.
                owned.append((topic_id, partition))
        yield
    quotas = dict.fromkeys(kept, least)
    for member_id in sorted(kept, key=lambda x: (-len(kept[x]), x))[:longer]:
        quotas[member_id] += 1  # To members that have more already, so that fewer partitions move.
    for member_id, surplus in kept.items():
        for topic_id, partition in surplus[quotas[member_id] :]:
            free[topic_id].add(partition)
        del surplus[quotas[member_id] :]
        yield
    waiting = ((topic_id, partition) for topic_id in _sorted(free) for partition in sorted(free[topic_id]))
    result: dict[str, Assignment] = {}
    for member_id, share in kept.items():
        share.extend(islice(waiting, quotas[member_id] - len(share)))
        result[member_id] = _assignment(share)
        yield
    return result


def _uniform_different_topics(members: Members, partition_counts: Mapping[UUID, int]) -> Result:
    """Members keep what they are still subscribed to. Each other partition goes to the subscriber with the smallest
    load. Then the loads are balanced topic by topic."""
    subscribers = yield from _subscribers(members, sorted(members))
    owned: dict[str, dict[UUID, set[int]]] = {member_id: {} for member_id in members}
    loads = dict.fromkeys(sorted(members), 0)

    def give_partition(member_id: str, topic_id: UUID, partition: int) -> None:
        owned[member_id].setdefault(topic_id, set()).add(partition)
        loads[member_id] += 1

    free = {topic_id: set(range(partition_counts[topic_id])) for topic_id in subscribers}
    for member_id in loads:
        topics = frozenset(members[member_id].topics)
        for topic_id, partition in _partitions(members[member_id].target):
            if topic_id in topics and partition in free[topic_id]:
                free[topic_id].remove(partition)
                give_partition(member_id, topic_id, partition)
        yield
    # Topics with few subscribers first: no other member can take their partitions.
    topic_ids = sorted(subscribers, key=lambda x: (len(subscribers[x]), x.int))
    for topic_id in topic_ids:
        least = [(loads[member_id], member_id) for member_id in subscribers[topic_id]]
        heapify(least)
        for partition in sorted(free[topic_id]):
            load, member_id = heappop(least)
            give_partition(member_id, topic_id, partition)
            heappush(least, (load + 1, member_id))
        yield
    # It ends, because each round that moves a partition lowers the sum of the squares of the loads.
    has_moved = True
    while has_moved:
        has_moved = False
        for topic_id in topic_ids:
            has_moved |= _balance_topic(topic_id, subscribers[topic_id], owned, loads)
            yield
    result: dict[str, Assignment] = {}
    for member_id, of_member in owned.items():
        result[member_id] = {
            topic_id: frozenset(partitions) for topic_id, partitions in of_member.items() if partitions
        }
        yield
    return result


def _balance_topic(
    topic_id: UUID, subscribers: list[str], owned: dict[str, dict[UUID, set[int]]], loads: dict[str, int]
) -> bool:
    """Move partitions of one topic until no further move makes two of its subscribers more even. Returns whether any
    partition moved."""
    most = [(-loads[member_id], member_id) for member_id in subscribers if owned[member_id].get(topic_id)]
    least = [(loads[member_id], member_id) for member_id in subscribers]
    heapify(most)
    heapify(least)
    moved = False
    while most:
        load, giver = -most[0][0], most[0][1]
        if load != loads[giver]:
            heappop(most)
            if owned[giver][topic_id]:
                heappush(most, (-loads[giver], giver))
            continue
        other, taker = least[0]
        if other != loads[taker]:
            heappop(least)
            heappush(least, (loads[taker], taker))
            continue
        if load - other < 2:
            break
        partition = max(owned[giver][topic_id])
        owned[giver][topic_id].remove(partition)
        owned[taker].setdefault(topic_id, set()).add(partition)
        loads[giver] -= 1
        loads[taker] += 1
        moved = True
        heappop(most)
        if owned[giver][topic_id]:
            heappush(most, (-loads[giver], giver))
        heappush(most, (-loads[taker], taker))
    return moved


def _partitions(target: Assignment | None) -> list[_Partition]:
    """Sorted, so that a member keeps the same partitions in every process."""
    if not target:
        return []
    return [(topic_id, partition) for topic_id in _sorted(target) for partition in sorted(target[topic_id])]


def _sorted(topic_ids: Iterable[UUID]) -> list[UUID]:
    """By number, which is the same order: UUIDs are compared in Python."""
    return sorted(topic_ids, key=lambda topic_id: topic_id.int)


def _assignment(partitions: list[_Partition]) -> Assignment:
    by_topic: dict[UUID, list[int]] = {}
    for topic_id, partition in partitions:
        by_topic.setdefault(topic_id, []).append(partition)
    return {topic_id: frozenset(numbers) for topic_id, numbers in by_topic.items()}


ASSIGNORS: Mapping[str, Assignor] = {"uniform": assign_uniform, "range": assign_range}
"""By Kafka's names. `group.consumer.assignors` says which of them a node offers."""
