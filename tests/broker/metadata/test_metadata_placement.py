from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from broker.metadata import placement
from protocol.codec import at_once


def place(
    brokers: Sequence[int], partition_count: int, replication_factor: int, rng: random.Random
) -> list[tuple[int, ...]]:
    return at_once(placement.place(brokers, partition_count, replication_factor, rng))


brokers = st.lists(st.integers(0, 1000), min_size=1, max_size=12, unique=True)


@given(st.data(), brokers, st.integers(1, 60), st.integers())
def test_replicas_and_leaders_are_spread_within_one(
    data: st.DataObject, brokers: list[int], partition_count: int, seed: int
) -> None:
    replication_factor = data.draw(st.integers(1, len(brokers)))
    placed = place(brokers, partition_count, replication_factor, random.Random(seed))
    assert len(placed) == partition_count
    for replicas in placed:
        assert len(replicas) == len(set(replicas)) == replication_factor
        assert set(replicas) <= set(brokers)
    held = Counter(node_id for replicas in placed for node_id in replicas)
    led = Counter(replicas[0] for replicas in placed)
    for counts in (held, led):
        per_broker = [counts[node_id] for node_id in brokers]
        assert max(per_broker) - min(per_broker) <= 1


def test_a_dead_broker_leaves_its_partitions_to_most_of_the_others() -> None:
    placed = place(range(12), 120, 3, random.Random(1))
    partners = {other for replicas in placed if 0 in replicas for other in replicas} - {0}
    assert len(partners) >= 8


def test_topics_of_one_partition_do_not_all_land_on_one_broker() -> None:
    rng = random.Random(1)
    assert {place([1, 2, 3], 1, 1, rng)[0][0] for _ in range(50)} == {1, 2, 3}


def test_the_same_seed_gives_the_same_placement() -> None:
    assert place([1, 2, 3], 20, 2, random.Random(5)) == place([1, 2, 3], 20, 2, random.Random(5))
