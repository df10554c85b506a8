"""What a seed decides before anything runs: the cluster, the faults, and when they happen (swarm testing: which kinds
of fault there are differs from seed to seed, so that none hides the others)."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import NamedTuple

from tests.simulator.faults import FAULTS
from tests.simulator.faults.disks import LOSSES
from tests.simulator.workload.plan import Workload, workload_of

#: Virtual seconds of faults.
FAULTS_S = 6.0
#: Virtual seconds between one fault and the next, on average: each seed has one of these.
MEAN_GAPS_S = (0.3, 0.4, 0.8)
#: How many of the kinds of fault there are, on average: each seed has one of these.
SHARES = (0.1, 0.25, 0.4)
#: A kind of fault that lasts long: the share of seeds that have it, and when it begins.
LONG_KIND = "isolate successors"
LONG_SHARE = 0.6
BEGINS_S = (0.5, 1.5)
#: The share of seeds in which leaders compare their replicas with the others all the while, and how often.
VERIFIED_SHARE = 0.5
VERIFY_INTERVAL_MS = 300
#: The share of seeds in which members that are away are left out of their groups, and how soon
#: (varve.compaction.max.pin.ms). Not in seeds in which logs are lost: while a member is left out, its group has a copy
#: less, and a log that is lost then may be one too many (seed 91221196316: one of three is left out, and another one's
#: disk is replaced).
PIN_LIMIT_SHARE = 0.2
PIN_LIMITS_MS = (300, 2000)


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
    max_pin_ms: int
    """-1: no limit."""
    verify_interval_ms: int
    """How often a leader compares a partition with the other replicas. 0: never."""
    cleaner_threads: int
    """How many logs a node compacts at the same time."""


def plan_of(
    seed: int,
    *,
    mix: tuple[str, ...] | None = None,
    has_groups: bool | None = None,
    has_transactions: bool | None = None,
) -> Plan:
    """`mix`: these kinds of fault instead of those that the seed would choose. `has_groups`: whether clients are
    members of groups; `has_transactions`: whether they write in transactions."""
    rng = random.Random(seed)
    node_count = rng.choice((3, 3, 3, 4, 5))
    workload = workload_of(
        random.Random(rng.getrandbits(64)),
        node_count,
        has_groups=has_groups,
        has_transactions=has_transactions,
    )
    share, mean_gap_s = rng.choice(SHARES), rng.choice(MEAN_GAPS_S)
    chosen = tuple(name for name in FAULTS if rng.random() < (LONG_SHARE if name == LONG_KIND else share))
    kinds = chosen if mix is None else mix
    faults: list[PlannedFault] = []
    if LONG_KIND in kinds:
        faults.append(PlannedFault(rng.uniform(*BEGINS_S), LONG_KIND, rng.getrandbits(64)))
    at_s = rng.expovariate(1 / mean_gap_s)
    while kinds and at_s < FAULTS_S:
        faults.append(PlannedFault(at_s, rng.choice(kinds), rng.getrandbits(64)))
        at_s += rng.expovariate(1 / mean_gap_s)
    faults.sort()
    max_pin_ms = rng.randrange(*PIN_LIMITS_MS) if rng.random() < PIN_LIMIT_SHARE else -1
    if not LOSSES.keys().isdisjoint(kinds):
        max_pin_ms = -1
    verify_interval_ms = VERIFY_INTERVAL_MS if rng.random() < VERIFIED_SHARE else 0
    cleaner_threads = rng.choice((1, 2))
    return Plan(
        seed, node_count, kinds, tuple(faults), workload, max_pin_ms, verify_interval_ms, cleaner_threads
    )
