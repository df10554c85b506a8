"""Where the replicas of a new topic go: even over brokers, different together. Racks are not considered."""

from __future__ import annotations

import random
from collections.abc import Generator, Sequence
from math import gcd


def place(
    brokers: Sequence[int], partition_count: int, replication_factor: int, rng: random.Random
) -> Generator[None, None, list[tuple[int, ...]]]:
    """The replicas of each partition, preferred leader first; in steps.

    Brokers hold numbers of replicas that differ by at most one, and lead numbers that differ by at most one,
    for every count of partitions.

    Partitions are laid out in blocks of n = len(brokers), each over a fresh shuffle of the brokers, so that
    the partitions of a dead broker spread over many others. Within a block the replica sets are laid end to
    end around the circle of brokers: that evens out the replicas. The sets start over after n / gcd(n, r)
    partitions; from each such lap to the next the leader moves one position on within the set, so a block
    has every broker lead once.
    """
    size = len(brokers)
    assert len(set(brokers)) == size
    assert 1 <= replication_factor <= size
    lap = size // gcd(size, replication_factor)
    #: Of each partition of a block, where its replicas stand in the order.
    positions = [
        tuple(
            (within * replication_factor + (within // lap + position) % replication_factor) % size
            for position in range(replication_factor)
        )
        for within in range(size)
    ]
    placed: list[tuple[int, ...]] = []
    while len(placed) < partition_count:
        order = rng.sample(brokers, size)
        placed += [
            tuple([order[position] for position in of_one])
            for of_one in positions[: partition_count - len(placed)]
        ]
        yield
    return placed
