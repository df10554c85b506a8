"""Nodes that have much to do: work in steps (broker.scheduling) is begun at once as always, and goes on late. What
comes later and is smaller is done before; who waits for an answer has asked again."""

from __future__ import annotations

import random
from collections.abc import Callable

from broker.scheduling.budget import LoopBudget
from tests.simulator.cluster import SimulatedCluster
from tests.simulator.faults.kind import Fault

#: How long a node is busy, on average.
BUSY_S = 1.0
#: Until the next piece of work has its turn, on average. Mostly one or two steps are a piece.
GAPS_S = (0.01, 0.05, 0.2)
#: What a step takes: as long as the whole piece may.
STEP_S = 0.001


def busy(cluster: SimulatedCluster, rng: random.Random) -> None:
    """One node's background work, or long requests, or both."""
    ready = [node_id for node_id in cluster.alive() if hasattr(cluster.nodes.get(node_id), "context")]
    if not ready:
        return
    node = cluster.nodes[rng.choice(ready)]
    budgets = [node.background._budget, node.context.long_requests._budget]
    end_s = cluster.loop.time() + rng.expovariate(1 / BUSY_S)

    def is_over() -> bool:
        return cluster.is_healed or cluster.loop.time() >= end_s

    for budget in rng.sample(budgets, rng.randint(1, 2)):
        _starve(budget, rng.choice(GAPS_S), random.Random(rng.getrandbits(64)), is_over)


def _starve(budget: LoopBudget, gap_s: float, rng: random.Random, is_over: Callable[[], bool]) -> None:
    """Until it is over. Several may stand on each other."""
    now, schedule = budget.now, budget._schedule
    worked_s = 0.0

    def later() -> float:
        nonlocal worked_s
        if is_over():
            return now()
        worked_s += STEP_S
        return now() + worked_s

    def schedule_late() -> None:
        if is_over():
            schedule()
        elif not budget._is_scheduled:
            budget._is_scheduled = True
            budget._loop.call_later(rng.expovariate(1 / gap_s), budget._next_iteration)

    budget.now = later
    budget._schedule = schedule_late  # type: ignore[method-assign]


FAULTS: dict[str, Fault] = {"busy": busy}
