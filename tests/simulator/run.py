"""One seed: a cluster, its clients and its faults; first safety, then, healed, liveness (style.md section 3.2)."""

from __future__ import annotations

import random
import time
from collections.abc import Collection
from contextlib import ExitStack
from dataclasses import dataclass, field

from tests.simulator.cluster import SimulatedCluster, captured_logs
from tests.simulator.faults import FAULTS
from tests.simulator.mutations.kind import Mutation
from tests.simulator.mutations.stage import tell
from tests.simulator.plan import FAULTS_S, Plan, plan_of
from tests.simulator.workload.clients import Clients

#: The virtual time by which a healed cluster must have done all its work.
HEALED_LIMIT_S = 60.0
#: How often the logs are compared as a whole; roles and commits are looked at when they happen.
SCAN_S = 0.1
LAST_LOG_LINES = 60


@dataclass
class Result:
    plan: Plan
    digest: str = ""
    events: int = 0
    acknowledged: int = 0
    read: int = 0
    elapsed_s: float = 0.0
    failure: BaseException | None = None
    log_lines: list[str] = field(default_factory=list)

    def line(self) -> str:
        return (
            f"seed {self.plan.seed}: {'FAILED' if self.failure else 'ok'}, {self.plan.node_count} nodes, "
            f"{self.acknowledged} acknowledged, {self.read} read, {self.events} events, "
            f"{self.events / max(self.elapsed_s, 1e-9):,.0f}/s, digest {self.digest[:12]}, "
            f"{len(self.plan.faults)} faults: {', '.join(self.plan.mix) or 'none'}"
        )

    def report(self) -> str:
        """Everything that is needed to begin looking for the cause."""
        return "\n".join(
            [
                self.line(),
                *self.log_lines[-LAST_LOG_LINES:],
                f"repeat it: scripts/simulate --seed {self.plan.seed}",
            ]
        )


class Simulation:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        rng = random.Random(plan.seed)
        self.cluster = SimulatedCluster(random.Random(rng.getrandbits(64)), size=plan.node_count)
        self.clients_rng = random.Random(rng.getrandbits(64))
        self.clients: Clients | None = None

    def run(self, kept: Collection[int] | None = None) -> None:
        """`kept`: only these of the plan's faults happen, by position; all, if it is None."""
        cluster = self.cluster
        cluster.start()
        self.clients = Clients(cluster, self.clients_rng)
        start_s = cluster.loop.time()
        for position, fault in enumerate(self.plan.faults):
            self._run_until(start_s + fault.at_s)
            if kept is None or position in kept:
                FAULTS[fault.name](cluster, random.Random(fault.seed))
        self._run_until(start_s + FAULTS_S)
        self._settle(self.clients)

    def _settle(self, clients: Clients) -> None:
        cluster = self.cluster
        cluster.heal()
        end_s = cluster.loop.time() + HEALED_LIMIT_S
        while not (clients.is_done and cluster.are_equal()):
            assert cluster.loop.time() < end_s, (
                f"no progress after healing; {clients.describe()}, {cluster.describe()}"
            )
            self._run_until(cluster.loop.time() + SCAN_S)
        clients.check()
        cluster.assert_same_bytes()
        for key in cluster.hosted():
            for replica in cluster.holders(key).values():
                cluster.oracle.acknowledged.check_replica(replica)

    def _run_until(self, end_s: float) -> None:
        """Run, and compare all logs every now and then."""
        assert self.clients is not None
        while (left_s := end_s - self.cluster.loop.time()) > 0:
            self.cluster.loop.run_for(min(SCAN_S, left_s))
            self.cluster.scan()
            self.clients.check()


def simulate(
    seed: int,
    *,
    mix: tuple[str, ...] | None = None,
    kept: Collection[int] | None = None,
    mutation: Mutation | None = None,
    is_off: bool = True,
) -> Result:
    """`mix`: these kinds of fault. `kept`: only these faults of the plan, by position. `mutation`: under its
    conditions, and with its rule off unless `is_off` is False."""
    started_s = time.perf_counter()
    plan = plan_of(seed, mix=mix if mix is not None or mutation is None else mutation.mix)
    simulation = Simulation(plan)
    cluster = simulation.cluster
    result = Result(plan)
    with ExitStack() as stack:
        lines = stack.enter_context(captured_logs(cluster.loop))
        if mutation is not None:
            stack.enter_context(mutation.conditions(cluster, random.Random(seed)))
            if is_off:
                stack.enter_context(mutation.switched_off(cluster))
        try:
            if mutation is not None and mutation.story is not None:
                tell(cluster, random.Random(seed), mutation.story)
            else:
                simulation.run(kept)
        except Exception as failure:
            result.failure = failure
        result.log_lines = list(lines)
        result.digest = cluster.loop.trace.digest()
        result.events = cluster.loop.trace.events
        result.acknowledged = cluster.oracle.acknowledged.count
        result.read = simulation.clients.batches_read if simulation.clients else 0
        try:
            cluster.close()
        except Exception as failure:
            result.failure = result.failure or failure
    result.elapsed_s = time.perf_counter() - started_s
    return result
