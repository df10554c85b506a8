"""One seed: a cluster, its clients and its faults; first safety, then, healed, liveness (style.md section 3.2)."""

from __future__ import annotations

import random
import shlex
import time
import traceback
from collections.abc import Collection
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

from tests.simulator.cluster import TINY, SimulatedCluster, captured_logs
from tests.simulator.faults import FAULTS, membership
from tests.simulator.mutations.kind import Mutation
from tests.simulator.mutations.stage import tell
from tests.simulator.plan import FAULTS_S, Plan, PlannedFault, plan_of
from tests.simulator.progress import ProgressDemand
from tests.simulator.verdict import Verdict, verdict_of
from tests.simulator.workload.clients import Clients

#: The virtual time by which a healed cluster must have done all its work, what its clients wait for included; when it
#: must lead and take writes again, `progress` says.
HEALED_LIMIT_S = 30.0
#: How often the logs are compared as a whole; roles and commits are looked at when they happen.
SCAN_S = 0.1
#: How often a healed cluster is made to read the corrupt files that are left.
REVEAL_S = 5.0
#: How much of the nodes' own logs a report shows.
LAST_LOG_LINES = 60


@dataclass(frozen=True)
class Variant:
    """How a run differs from what its seed alone decides."""

    #: These kinds of fault, instead of those that the seed chooses.
    mix: tuple[str, ...] | None = None
    #: Only these faults of the plan, by position.
    kept: tuple[int, ...] | None = None
    #: A rule, by its name in MUTATIONS: its conditions hold.
    mutation: str | None = None
    #: ... and it is off.
    is_off: bool = True

    def command(self, seed: int) -> str:
        """What to type to see the same run again."""
        words = ["scripts/simulate", "--seed", str(seed)]
        if self.mutation is not None:
            words += ["--mutate", self.mutation, *([] if self.is_off else ["--rule-on"])]
        if self.mix is not None:
            words += ["--mix", ",".join(self.mix)]
        if self.kept is not None:
            words += ["--keep", ",".join(map(str, self.kept))]
        return shlex.join(words)


@dataclass
class Result:
    plan: Plan
    variant: Variant = field(default_factory=Variant)
    digest: str = ""
    events: int = 0
    acknowledged: int = 0
    read: int = 0
    virtual_s: float = 0.0
    elapsed_s: float = 0.0
    failure: BaseException | None = None
    #: Each fault that was made, in words, by its position in the plan.
    story: dict[int, str] = field(default_factory=dict)
    last_events: list[str] = field(default_factory=list)
    log_lines: list[str] = field(default_factory=list)

    @property
    def verdict(self) -> Verdict | None:
        return None if self.failure is None else verdict_of(self.failure)

    def line(self) -> str:
        return (
            f"seed {self.plan.seed}: {'FAILED' if self.failure else 'ok'}, {self.plan.node_count} nodes, "
            f"{self.acknowledged} acknowledged, {self.read} read, {self.events} events, "
            f"{self.events / max(self.elapsed_s, 1e-9):,.0f}/s, digest {self.digest[:12]}, "
            f"{len(self.story)} faults: {', '.join(self.plan.mix) or 'none'}"
        )

    def report(self) -> str:
        """Everything that is needed to begin looking for the cause."""
        assert self.failure is not None
        verdict = verdict_of(self.failure)
        text = "".join(traceback.format_exception(self.failure)).rstrip()
        # Exceptions of the loop end with the last events already.
        events = [] if self.last_events and self.last_events[-1] in text else self.last_events
        return "\n".join(
            [
                self.line(),
                "the last events:",
                *events,
                text,
                "the nodes' last log lines:",
                *self.log_lines[-LAST_LOG_LINES:],
                "the faults:",
                *self.story.values(),
                f"violated: {verdict}, at {verdict.location}",
                f"digest: {self.digest}",
                f"repeat it: {self.variant.command(self.plan.seed)}",
            ]
        )


class Simulation:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        rng = random.Random(plan.seed)
        self.cluster = SimulatedCluster(
            random.Random(rng.getrandbits(64)),
            size=plan.node_count,
            config=replace(
                TINY,
                compaction_max_pin_ms=plan.max_pin_ms,
                verify_interval_ms=plan.verify_interval_ms,
                cleaner_threads=plan.cleaner_threads,
            ),
        )
        self.clients: Clients | None = None
        self.story: dict[int, str] = {}

    def run(self, kept: Collection[int] | None = None) -> None:
        """`kept`: only these of the plan's faults happen, by position; all, if it is None."""
        cluster = self.cluster
        cluster.start()
        self.clients = Clients(
            cluster, self.plan.workload, replicas_stay=membership.FAULTS.keys().isdisjoint(self.plan.mix)
        )
        cluster.damage.spares_nodes = any(x.replication_factor == 1 for x in self.plan.workload.topics)
        start_s = cluster.loop.time()
        for position, fault in enumerate(self.plan.faults):
            self._run_until(start_s + fault.at_s)
            if kept is None or position in kept:
                self._make(position, fault)
        self._run_until(start_s + FAULTS_S)
        self._demand_progress(self.clients)

    def _make(self, position: int, fault: PlannedFault) -> None:
        """Make a fault, and say in words what it did: its name and what the world noted meanwhile."""
        notes = self.cluster.loop.trace.notes
        before = len(notes)
        words = self.story[position] = f"{position:4} at {fault.at_s:.3f} s {fault.name}"
        FAULTS[fault.name](self.cluster, random.Random(fault.seed))
        if did := "; ".join(f"{node} {text}" for _, node, text in notes[before:]):
            self.story[position] = f"{words}: {did}"

    def _demand_progress(self, clients: Clients) -> None:
        cluster = self.cluster
        cluster.heal()
        ProgressDemand(cluster).run(self._run_until)
        end_s = cluster.loop.time() + HEALED_LIMIT_S
        cluster.damage.reveal()
        revealed_s = cluster.loop.time()
        while missing := self._missing(clients):
            assert cluster.loop.time() < end_s, (
                f"no progress after healing: {missing}; {clients.describe()}, {cluster.describe()}"
            )
            self._run_until(cluster.loop.time() + SCAN_S)
            if cluster.loop.time() > revealed_s + REVEAL_S:
                cluster.damage.reveal()
                revealed_s = cluster.loop.time()
        clients.check()
        clients.check_all_seen()
        cluster.assert_whole()

    def _missing(self, clients: Clients) -> str:
        """The first thing that a healed cluster still owes; empty: all is done."""
        if not clients.is_done:
            return "clients have work to do"
        if not self.cluster.are_equal():
            return "replicas are not equal"
        if not self.cluster.have_no_open_transactions():
            return "transactions are open"
        if not clients.has_read_all():
            return "readers have not read all"
        return ""

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
    variant = Variant(
        mix,
        None if kept is None else tuple(sorted(kept)),
        None if mutation is None else mutation.name,
        is_off,
    )
    if mutation is None:
        plan = plan_of(seed, mix=mix)
    else:
        plan = plan_of(
            seed,
            mix=mutation.mix if mix is None else mix,
            has_groups=mutation.has_groups,
            has_transactions=mutation.has_transactions,
        )
    simulation = Simulation(plan)
    cluster = simulation.cluster
    loop = cluster.loop
    started_at_s = loop.time()
    result = Result(plan, variant)
    with ExitStack() as stack:
        lines = stack.enter_context(captured_logs(loop))
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
            result.last_events = loop.trace.recent()
        result.log_lines = list(lines)
        result.story = simulation.story
        result.digest = loop.trace.digest()
        result.events = loop.trace.events
        result.virtual_s = loop.time() - started_at_s
        result.acknowledged = cluster.oracle.acknowledged.count
        result.read = simulation.clients.batches_read if simulation.clients else 0
        try:
            cluster.close()
        except Exception as failure:
            result.failure = result.failure or failure
    result.elapsed_s = time.perf_counter() - started_s
    return result
