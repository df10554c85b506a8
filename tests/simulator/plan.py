"""What a seed decides before anything runs: the cluster, the faults, and when they happen (swarm testing: which kinds
of fault there are differs from seed to seed, so that none hides the others)."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import NamedTuple

from tests.simulator.faults import FAULTS
from tests.simulator.workload.plan import Workload, workload_of

#: Virtual seconds of faults.
FAULTS_S = 6.0
#: Virtual seconds between one fault and the next, on average.
MEAN_GAP_S = 0.4


class PlannedFault(NamedTuple):
    at_s: float
    name: str
    #: Of its own `Random`, so that leaving one fault out does not change what the others do.
    seed: int


@dataclass(frozen=True)
class Plan:
    seed: int
    node_count: int
    #: The kinds that may happen.
    mix: tuple[str, ...]
    #: In order of time.
    faults: tuple[PlannedFault, ...]
    workload: Workload


def plan_of(seed: int, *, mix: tuple[str, ...] | None = None, has_groups: bool | None = None) -> Plan:
    """`mix`: these kinds of fault instead of those that the seed would choose. `has_groups`: whether clients are
    members of groups."""
    rng = random.Random(seed)
    node_count = rng.choice((3, 3, 3, 4, 5))
    workload = workload_of(random.Random(rng.getrandbits(64)), node_count, has_groups=has_groups)
    chosen = tuple(name for name in FAULTS if rng.random() < 0.4)
    kinds = chosen if mix is None else mix
    faults: list[PlannedFault] = []
    at_s = rng.expovariate(1 / MEAN_GAP_S)
    while kinds and at_s < FAULTS_S:
        faults.append(PlannedFault(at_s, rng.choice(kinds), rng.getrandbits(64)))
        at_s += rng.expovariate(1 / MEAN_GAP_S)
    return Plan(seed, node_count, kinds, tuple(faults), workload)
