"""Links that lose, hold back and reset."""

from __future__ import annotations

import random

from tests.simulator.cluster import SimulatedCluster, host_of
from tests.simulator.faults.kind import Fault


def _two_hosts(cluster: SimulatedCluster, rng: random.Random) -> tuple[str, str]:
    one, other = rng.sample(cluster.node_ids, 2)
    return host_of(one), host_of(other)


def cut(cluster: SimulatedCluster, rng: random.Random) -> None:
    """Between two nodes, one way or both."""
    one, other = _two_hosts(cluster, rng)
    cluster.network.cut(one, other)
    if rng.random() < 0.5:
        cluster.network.cut(other, one)
    cluster.loop.call_later(rng.expovariate(1 / 1.0), cluster.network.heal_all)


def isolate(cluster: SimulatedCluster, rng: random.Random) -> None:
    """One node from its peers; clients still reach it."""
    cluster.isolate(rng.choice(cluster.node_ids))
    cluster.loop.call_later(rng.expovariate(1 / 1.5), cluster.network.heal_all)


def stall(cluster: SimulatedCluster, rng: random.Random) -> None:
    """Late, not lost."""
    link = cluster.network.link(*_two_hosts(cluster, rng))
    link.stall()
    cluster.loop.call_later(rng.expovariate(1 / 0.5), link.unstall)


def reset(cluster: SimulatedCluster, rng: random.Random) -> None:
    """RST on every connection between two nodes."""
    cluster.network.reset(*_two_hosts(cluster, rng))


FAULTS: dict[str, Fault] = {"cut": cut, "isolate": isolate, "stall": stall, "reset": reset}
