"""A broker that becomes slow and is restarted, under many clients that retry: load against time, by retry policy."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial

from pipeline.lab.bench import Bench
from pipeline.lab.proxy import Proxy
from pipeline.lab.storm_clients import BOUND_MS, POLICIES, Clients, Fate, prepare, run_clients
from pipeline.report.findings import TableOf, plot_of
from pipeline.report.sweep import Axis, Series, Sweep

_PROCESSES = 2
_RATE_PER_S = 4.0
_RECORD_BYTES = 1_000
# Of the normal load: what the slow broker takes.
_SLOW_SHARE = 0.2
_LEAD_S = 5.0
# A record is served in time if it is acknowledged within this, and a second is well if this share of its records is.
_IN_TIME_S = 1.0
_WELL_SHARE = 0.95


@dataclass(frozen=True, slots=True)
class Phases:
    """Seconds. Between `slow_s` and `after_s` the broker is down, for as long as its restart takes."""

    clients: int
    normal_s: float
    slow_s: float
    after_s: float


_PHASES = Phases(clients=40, normal_s=15, slow_s=20, after_s=40)
_QUICK = Phases(clients=6, normal_s=5, slow_s=10, after_s=25)


@dataclass(frozen=True, slots=True)
class Storm:
    """One policy's. Times are seconds since the clients began."""

    normal_per_s: float
    load: list[tuple[float, float]]
    """Second, and Produce requests in it."""
    well: list[tuple[float, float]]
    """Second, and the share of the records due in it that were acknowledged in time."""
    restored_s: float
    recovered_s: float | None
    """From when the broker was whole again until all further seconds were well; None: never."""
    records: int
    acknowledged: int
    shed: int

    @property
    def peak_per_s(self) -> float:
        return max(count for _, count in self.load)

    @property
    def peak_ratio(self) -> float:
        return self.peak_per_s / self.normal_per_s


def run(bench: Bench, policies: Sequence[str] = tuple(POLICIES)) -> Sweep:
    """Raises PipelineError."""
    phases = _QUICK if bench.is_quick else _PHASES
    storms = {}
    for policy in policies:
        bench.say(f"{phases.clients} clients, {policy}")
        storms[policy] = _storm(bench, policy, phases)
    restart = (
        "is killed and started again"
        if bench.nodes and bench.nodes.can_restart
        else "is whole again (its restart was not tried)"
    )
    table = TableOf(
        "A slow broker that is restarted",
        (
            "policy",
            ("normal", "req/s"),
            ("peak", "req/s"),
            "peak / normal",
            ("recovered", "s"),
            ("acked", "%"),
            ("shed", "%"),
        ),
        f"{phases.clients} clients, each {_RATE_PER_S:g} record/s of {_RECORD_BYTES:,} B, one record a request, one"
        f" second for an attempt, {BOUND_MS // 1000} s for a record. After {phases.normal_s:g} s the broker takes"
        f" {_SLOW_SHARE:.0%} of that for {phases.slow_s:g} s, then it {restart}. Requests are counted in front of it,"
        " by the second.",
    )
    for policy, storm in storms.items():
        table.add(
            policy,
            storm.normal_per_s,
            storm.peak_per_s,
            storm.peak_ratio,
            storm.recovered_s,
            100 * storm.acknowledged / storm.records,
            100 * storm.shed / storm.records,
        )
    time_axis = Axis("time", "s", "linear")
    load = plot_of(
        "Load on the broker",
        time_axis,
        Axis("Produce requests", "1/s", "linear"),
        *(Series(policy, list(storm.load), False) for policy, storm in storms.items()),
    )
    well = plot_of(
        "Records acknowledged within a second",
        time_axis,
        Axis("share of the records due", "%", "linear"),
        *(Series(policy, list(storm.well), False) for policy, storm in storms.items()),
    )
    return Sweep("Retry storm", _seen(storms), [table.table()], [load, well])


def _seen(storms: dict[str, Storm]) -> str:
    sentences = []
    for policy, storm in storms.items():
        after = (
            "and it did not recover while one watched"
            if storm.recovered_s is None
            else f"and it was well {storm.recovered_s:.0f} s after the broker was"
        )
        sentences.append(f"With {policy} the load rose to {storm.peak_ratio:.1f} times normal, {after}.")
    return " ".join(sentences)


def _storm(bench: Bench, policy: str, phases: Phases) -> Storm:
    # One replica: nobody else can take the load over.
    topic = bench.topic("storm", replication_factor=1)
    leader = bench.leader(topic)
    processes = multiprocessing.get_context("spawn")
    ends, gives_up = processes.Event(), processes.Event()
    with (
        Proxy(bench.bootstrap_server) as proxy,
        ProcessPoolExecutor(_PROCESSES, processes, prepare, (ends, gives_up)) as pool,
    ):
        begin_at_s = time.monotonic() + _LEAD_S
        clients = partial(
            Clients,
            bootstrap_server=proxy.bootstrap_server,
            topic=topic,
            policy=policy,
            of_all=phases.clients,
            rate_per_s=_RATE_PER_S,
            begin_at_s=begin_at_s,
        )
        parts: list[Future[list[Fate]]] = [
            pool.submit(run_clients, clients(numbers=range(part, phases.clients, _PROCESSES)))
            for part in range(_PROCESSES)
        ]
        try:
            restored_s = _degrade(bench, proxy, leader, phases, begin_at_s)
            end_s = restored_s + phases.after_s
            _sleep_until(begin_at_s + end_s)
            ends.set()
            fates = [fate for part in parts for fate in part.result()]
        except BaseException:
            gives_up.set()
            ends.set()
            raise
        produced_s = [at_s - begin_at_s for at_s in proxy.produced_at_s()]
    return _judge(fates, produced_s, begin_at_s, restored_s, end_s, phases)


def _degrade(bench: Bench, proxy: Proxy, leader: int, phases: Phases, begin_at_s: float) -> float:
    """Do to the broker what the phases say; when it was whole again, in seconds since the clients began."""
    _sleep_until(begin_at_s + phases.normal_s)
    proxy.faults(leader).bytes_per_s = _SLOW_SHARE * phases.clients * _RATE_PER_S * _RECORD_BYTES
    _sleep_until(begin_at_s + phases.normal_s + phases.slow_s)
    if bench.nodes is not None and bench.nodes.can_restart:
        bench.nodes.kill(leader)
        bench.nodes.start(leader)
    proxy.faults(leader).bytes_per_s = None
    return time.monotonic() - begin_at_s


def _sleep_until(at_s: float) -> None:
    time.sleep(max(0.0, at_s - time.monotonic()))


def _judge(
    fates: list[Fate],
    produced_s: list[float],
    begin_at_s: float,
    restored_s: float,
    end_s: float,
    phases: Phases,
) -> Storm:
    seconds = range(int(end_s))
    load = [0] * len(seconds)
    for at_s in produced_s:
        if 0 <= at_s < len(seconds):
            load[int(at_s)] += 1
    due = [0] * len(seconds)
    in_time = [0] * len(seconds)
    for fate in fates:
        second = min(len(seconds) - 1, int(fate.due_at_s - begin_at_s))
        due[second] += 1
        in_time[second] += fate.latency_s is not None and fate.latency_s <= _IN_TIME_S
    shares = [good / count if count else 1.0 for good, count in zip(in_time, due, strict=True)]
    normal = load[1 : int(phases.normal_s)]
    return Storm(
        normal_per_s=sum(normal) / len(normal),
        load=[(float(second), float(count)) for second, count in zip(seconds, load, strict=True)],
        well=[(float(second), 100 * share) for second, share in zip(seconds, shares, strict=True)],
        restored_s=restored_s,
        recovered_s=recovered_after_s(shares, restored_s),
        records=len(fates),
        acknowledged=sum(fate.latency_s is not None for fate in fates),
        shed=sum(fate.is_shed for fate in fates),
    )


def recovered_after_s(shares: Sequence[float], restored_s: float) -> float | None:
    """From `restored_s` to the beginning of the first second from which on all were well; None where the last was not.

    `shares`: of each second, the records that were served in time."""
    ill = [second for second, share in enumerate(shares) if share < _WELL_SHARE]
    if not ill:
        return 0.0
    well_from = ill[-1] + 1
    return None if well_from == len(shares) else max(0.0, well_from - restored_s)
