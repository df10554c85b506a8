"""Disks that are slow."""

from __future__ import annotations

import random

from tests.simulator.cluster import SimulatedCluster
from tests.simulator.faults.kind import Fault


def slow_disk(cluster: SimulatedCluster, rng: random.Random) -> None:
    faults = cluster.disks[rng.choice(cluster.node_ids)].faults
    faults.slow_factor = 200.0 if faults.slow_factor == 1.0 else 1.0


FAULTS: dict[str, Fault] = {"slow disk": slow_disk}
