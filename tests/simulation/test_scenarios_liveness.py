"""How long nobody leads: well under a second after a kill, two election timeouts otherwise (replication.md section 5).
In virtual time, over worlds whose timers fall differently."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.simulator.cluster import METADATA_KEY, SimulatedCluster, captured_logs, host_of

ELECTION_TIMEOUT_S = 1.0
SEEDS = range(6)


@contextmanager
def idle_cluster(seed: int, size: int) -> Iterator[tuple[SimulatedCluster, int]]:
    """... of which everybody is ready, some time later; and who leads its metadata."""
    rng = random.Random(seed)
    cluster = SimulatedCluster(rng, size=size)
    with captured_logs(cluster.loop):
        cluster.start()
        cluster.run_until(lambda: is_ready(cluster), limit_s=5)
        cluster.loop.run_for(rng.uniform(1.0, 3.0))
        (leader,) = leaders(cluster)
        yield cluster, leader
        cluster.close()


def is_ready(cluster: SimulatedCluster) -> bool:
    return len(cluster.nodes) == len(cluster.node_ids) and all(
        node.ready.is_set() for node in cluster.nodes.values()
    )


def leaders(cluster: SimulatedCluster, *but: int) -> list[int]:
    return [
        node_id
        for node_id, replica in cluster.holders(METADATA_KEY).items()
        if replica.is_serving and node_id not in but
    ]


def others(cluster: SimulatedCluster, node_id: int) -> list[str]:
    return [host_of(other) for other in cluster.node_ids if other != node_id]


def deafen(cluster: SimulatedCluster, node_id: int) -> None:
    cluster.network.cut_all((other, host_of(node_id)) for other in others(cluster, node_id))


def silence(cluster: SimulatedCluster, node_id: int) -> None:
    cluster.network.cut_all((host_of(node_id), other) for other in others(cluster, node_id))


Fate = Callable[[SimulatedCluster, int], object]


@pytest.mark.parametrize("size", [3, 5])
@pytest.mark.parametrize(
    ("fate", "limit_s"), [(SimulatedCluster.stop, 0.05), (SimulatedCluster.kill, 0.3)], ids=["stop", "kill"]
)
def test_a_leader_that_ends_is_replaced_at_once(fate: Fate, limit_s: float, size: int) -> None:
    """It transfers its leaderships, or its kernel closes its connections and nobody can make them again."""
    for seed in SEEDS:
        with idle_cluster(seed, size) as (cluster, leader):
            fate(cluster, leader)
            cluster.run_until(lambda: bool(leaders(cluster, leader)), limit_s)


@pytest.mark.parametrize("size", [3, 5])
@pytest.mark.parametrize("fate", [SimulatedCluster.cut_power, SimulatedCluster.pause], ids=["power", "pause"])
def test_a_leader_that_falls_silent_is_replaced_within_two_election_timeouts(fate: Fate, size: int) -> None:
    for seed in SEEDS:
        with idle_cluster(seed, size) as (cluster, leader):
            fate(cluster, leader)
            cluster.run_until(lambda: bool(leaders(cluster, leader)), 2 * ELECTION_TIMEOUT_S)


@pytest.mark.parametrize("size", [3, 5])
@pytest.mark.parametrize("fate", [SimulatedCluster.isolate, deafen, silence])
def test_a_leader_that_is_cut_off_is_replaced_and_resigns_within_two_election_timeouts(
    fate: Fate, size: int
) -> None:
    """Whoever is cut off, in whichever direction, serves nobody afterwards, and comes back without an election."""
    for seed in SEEDS:
        with idle_cluster(seed, size) as (cluster, leader):
            fate(cluster, leader)
            end_s = cluster.loop.time() + 2 * ELECTION_TIMEOUT_S
            cluster.run_until(lambda: bool(leaders(cluster, leader)), 2 * ELECTION_TIMEOUT_S)
            cluster.run_until(lambda: leader not in leaders(cluster), end_s - cluster.loop.time())
            (successor,) = leaders(cluster)
            term = cluster.holders(METADATA_KEY)[successor].group.term
            cluster.loop.run_for(10 * ELECTION_TIMEOUT_S)
            cluster.heal()
            cluster.loop.run_for(4 * ELECTION_TIMEOUT_S)
            assert {r.group.term for r in cluster.holders(METADATA_KEY).values()} == {term}
            assert leaders(cluster) == [successor]


@pytest.mark.parametrize("dark", [False, True])
def test_a_cluster_of_which_all_died_at_once_leads_again_within_two_election_timeouts(dark: bool) -> None:
    for seed in SEEDS:
        with idle_cluster(seed, 3) as (cluster, _):
            for node_id in cluster.node_ids:
                (cluster.cut_power if dark else cluster.kill)(node_id)
            cluster.loop.run_for(1.0)
            cluster.start()
            cluster.run_until(lambda: bool(leaders(cluster)), 2 * ELECTION_TIMEOUT_S)
            cluster.run_until(lambda: is_ready(cluster) and cluster.are_equal(), ELECTION_TIMEOUT_S)
