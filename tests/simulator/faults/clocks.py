"""Wall clocks that lie. Nothing about replication may depend on them: who leads and what is committed hangs on loop
time and on counts. Timestamps of records and retention do depend on them, as with Kafka."""

from __future__ import annotations

import random

from tests.simulator.cluster import SimulatedCluster
from tests.simulator.faults.kind import Fault

HOUR_MS = 3_600_000
#: Real crystals lose or gain 100 ppm; a virtual machine's clock may run at half speed or at twice.
DRIFTS_PPM = (-500_000.0, -100.0, 100.0, 1_000_000.0)


def clock_jump(cluster: SimulatedCluster, rng: random.Random) -> None:
    """An operator, or NTP, sets one node's clock: by a moment or by months, forwards or backwards."""
    by_ms = rng.choice((1, 1000, HOUR_MS, 24 * HOUR_MS, 2000 * HOUR_MS)) * rng.choice((-1, 1))
    cluster.clocks[rng.choice(cluster.node_ids)].jump(by_ms)


def clock_drift(cluster: SimulatedCluster, rng: random.Random) -> None:
    """One node's clock runs too fast or too slowly, until it is set right again by a jump."""
    clock = cluster.clocks[rng.choice(cluster.node_ids)]
    clock.drift(rng.choice(DRIFTS_PPM))
    cluster.after(rng.expovariate(1 / 2.0), clock.correct)


FAULTS: dict[str, Fault] = {"clock jump": clock_jump, "clock drift": clock_drift}
