"""Processes and machines that die, sleep, and come back."""

from __future__ import annotations

import random

from tests.simulator.cluster import SimulatedCluster
from tests.simulator.faults.kind import Fault


def kill(cluster: SimulatedCluster, rng: random.Random) -> None:
    """kill -9."""
    if alive := cluster.alive():
        victim = rng.choice(alive)
        cluster.kill(victim)
        _restart_later(cluster, rng, victim)


def power(cluster: SimulatedCluster, rng: random.Random) -> None:
    """One machine goes dark, or several at the same moment."""
    if alive := cluster.alive():
        for victim in rng.sample(alive, rng.randint(1, len(alive))):
            cluster.cut_power(victim)
            _restart_later(cluster, rng, victim)


def pause(cluster: SimulatedCluster, rng: random.Random) -> None:
    """SIGSTOP, and SIGCONT later."""
    if alive := cluster.alive():
        victim = rng.choice(alive)
        cluster.pause(victim)
        cluster.loop.call_later(rng.expovariate(1 / 0.8), cluster.resume, victim)


def _restart_later(cluster: SimulatedCluster, rng: random.Random, node_id: int) -> None:
    def restart() -> None:
        if not cluster.is_alive(node_id):
            cluster.start(node_id)

    cluster.loop.call_later(rng.expovariate(1 / 0.5), restart)


FAULTS: dict[str, Fault] = {"kill": kill, "power": power, "pause": pause}
