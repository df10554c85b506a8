"""The ladder of acknowledgements: what each rung costs, and what it loses when a leader dies or the power fails."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from pipeline.errors import PipelineError
from pipeline.lab.bench import Bench, NoDisk
from pipeline.lab.power import Disk
from pipeline.lab.sending import Sending, Sent, Verdict, judge, percentile, read_back, send
from pipeline.report.findings import TableOf, plot_of
from pipeline.report.sweep import Axis, Series, Sweep

_RUNGS = ("0", "1", "all")
_VALUE_BYTES = 1_000
_PACED_PER_S = 200.0
_FAULTY_VALUE_BYTES = 100
_FAULTY_PER_S = 2_000.0
_THREAD_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class _Sizes:
    seconds: float
    rounds: int
    before_s: float
    """Of sending, until the fault."""
    after_s: float


_SIZES = _Sizes(seconds=5.0, rounds=3, before_s=3.0, after_s=3.0)
_QUICK = _Sizes(seconds=0.5, rounds=1, before_s=1.0, after_s=1.0)


def _settings(acks: str) -> dict[str, Any]:
    return {
        "acks": acks,
        # The same for all rungs, as the lower ones cannot have it.
        "enable.idempotence": False,
        "linger.ms": 5,
        "message.timeout.ms": 30_000,
        "socket.timeout.ms": 5_000,
        "request.timeout.ms": 5_000,
        "reconnect.backoff.max.ms": 500,
    }


def run(bench: Bench) -> Sweep:
    """Raises PipelineError."""
    sizes = _QUICK if bench.is_quick else _SIZES
    speed, megabytes_per_s = _speed(bench, sizes)
    losses = TableOf(
        "What is lost",
        ("acks", "fault", "acknowledged", "lost", "doubled"),
        f"{_FAULTY_PER_S:,.0f} records/s of {_FAULTY_VALUE_BYTES} B, retries without idempotence, {sizes.rounds} times"
        " each. Lost is what was acknowledged and is not in the log when all nodes are back.",
    )
    killed = _tried(losses, "leader killed (-9)", partial(_kill_leaders, bench, sizes))
    cut = _tried(losses, "power of all nodes cut", partial(_cut_power, bench, sizes))
    series = [
        Series(name, [(acks, float(verdicts[acks].lost)) for acks in _RUNGS], False)
        for name, verdicts in (("leader killed", killed), ("power cut", cut))
        if isinstance(verdicts, dict)
    ]
    plots = [
        plot_of(
            "Throughput by acks",
            Axis("acks", "", "category"),
            Axis("throughput", "MB/s", "linear"),
            Series("measured", list(megabytes_per_s.items()), False),
        )
    ]
    if series:
        lost = Axis("acknowledged records lost", "", "linear")
        plots.append(plot_of("Records lost by acks", Axis("acks", "", "category"), lost, *series))
    seen_of_faults = (_seen(killed, "a leader was killed"), _seen(cut, "the power was cut"))
    text = " ".join((_seen_of_speed(megabytes_per_s), *seen_of_faults))
    return Sweep("Ladder of acknowledgements", text, [speed.table(), losses.table()], plots)


_Verdicts = dict[str, Verdict]


def _tried(table: TableOf, fault: str, attempt: Callable[[], _Verdicts]) -> _Verdicts | str:
    """The verdict of each rung, or why it was not tried; both are in the table."""
    try:
        verdicts = attempt()
    except NotTried as reason:
        for acks in _RUNGS:
            table.add(acks, f"{fault}: not tried, {reason}", None, None, None)
        return str(reason)
    for acks, verdict in verdicts.items():
        table.add(acks, fault, verdict.acknowledged, verdict.lost, verdict.doubled)
    return verdicts


class NotTried(Exception):
    """Something that this fault takes is not there; the message says what."""


def _seen_of_speed(megabytes_per_s: dict[str, float]) -> str:
    none, one, every = (megabytes_per_s[acks] for acks in _RUNGS)
    return (
        f"Without waiting for an acknowledgement the producer sent {none:.1f} MB/s, with that of the leader {one:.1f},"
        f" with acks=all {every:.1f}."
    )


def _seen(verdicts: _Verdicts | str, what: str) -> str:
    if isinstance(verdicts, str):
        return f"What is lost when {what} was not tried: {verdicts}."
    lost = ", ".join(
        f"{verdicts[acks].lost:,} of {verdicts[acks].acknowledged:,} with acks={acks}" for acks in _RUNGS
    )
    return f"When {what}, acknowledged records were lost: {lost}."


def _speed(bench: Bench, sizes: _Sizes) -> tuple[TableOf, dict[str, float]]:
    table = TableOf(
        "What a rung costs",
        ("acks", ("throughput", "MB/s"), ("median", "ms"), ("99th", "ms")),
        f"Records of {_VALUE_BYTES:,} B: as fast as they are taken, and the latency of {_PACED_PER_S:g} a second. With"
        " acks=0 the client counts a record as acknowledged when it has written it to the socket.",
    )
    bench.warm_up()
    megabytes_per_s = {}
    for acks in _RUNGS:
        bench.say(f"acks={acks}: throughput and latency")
        topic = bench.topic("acks")
        sending = partial(
            Sending, bench.bootstrap_server, topic, _settings(acks), _VALUE_BYTES, seconds=sizes.seconds
        )
        fast, paced = send(sending()), send(sending(rate_per_s=_PACED_PER_S))
        megabytes_per_s[acks] = fast.per_second() * _VALUE_BYTES / 1e6
        table.add(
            acks,
            megabytes_per_s[acks],
            percentile(paced.latencies_ms, 0.5),
            percentile(paced.latencies_ms, 0.99),
        )
    return table, megabytes_per_s


def _kill_leaders(bench: Bench, sizes: _Sizes) -> _Verdicts:
    nodes = bench.nodes
    if nodes is None or not nodes.can_restart:
        raise NotTried("needs --node-command")
    verdicts = {}
    for acks in _RUNGS:
        parts = []
        for _ in range(sizes.rounds):
            bench.say(f"acks={acks}: a leader dies")
            topic = bench.topic("acks")
            leader = bench.leader(topic)
            with _SendingAside(bench, topic, acks) as aside:
                time.sleep(sizes.before_s)
                nodes.kill(leader)
                time.sleep(sizes.after_s)
            nodes.start(leader)
            parts.append(_verdict(bench, topic, aside.sent))
        verdicts[acks] = _sum(parts)
    return verdicts


def _cut_power(bench: Bench, sizes: _Sizes) -> _Verdicts:
    try:
        with bench.with_disk() as (on_disk, disk):
            return {
                acks: _sum([_cut(on_disk, disk, acks, sizes) for _ in range(sizes.rounds)]) for acks in _RUNGS
            }
    except NoDisk as reason:
        raise NotTried(str(reason)) from reason


def _cut(bench: Bench, disk: Disk, acks: str, sizes: _Sizes) -> Verdict:
    nodes = bench.nodes
    assert nodes is not None, "a bench with a disk has them"
    bench.say(f"acks={acks}: the power fails")
    topic = bench.topic("power")
    node_ids = bench.node_ids()
    disk.flush()
    with _SendingAside(bench, topic, acks) as aside:
        time.sleep(sizes.before_s)
        # Together: while one node lived, it would hold what the others lose.
        nodes.kill(*node_ids)
        disk.cut_power()
        aside.give_up()
    disk.restore_power()
    nodes.start(*node_ids)
    return _verdict(bench, topic, aside.sent)


class _SendingAside:
    """Sends at a steady rate in a thread until the end of the block, and then waits for the outcomes."""

    def __init__(self, bench: Bench, topic: str, acks: str) -> None:
        self._sending = Sending(
            bench.bootstrap_server, topic, _settings(acks), _FAULTY_VALUE_BYTES, rate_per_s=_FAULTY_PER_S
        )
        self._ends = threading.Event()
        self._gives_up = threading.Event()
        self._errors: list[Exception] = []
        self._thread = threading.Thread(target=self._run, name="sending")
        self.sent = Sent()
        """After the block."""

    def __enter__(self) -> _SendingAside:
        self._thread.start()
        return self

    def give_up(self) -> None:
        """What has no outcome yet is not waited for."""
        self._gives_up.set()

    def __exit__(self, kind: object, *_: object) -> None:
        self._ends.set()
        if kind is not None:
            self.give_up()
        self._thread.join(_THREAD_TIMEOUT_S)
        if self._errors:
            raise self._errors[0]

    def _run(self) -> None:
        try:
            self.sent = send(self._sending, self._gives_up, self._ends)
        except PipelineError as error:
            self._errors.append(error)


def _verdict(bench: Bench, topic: str, sent: Sent) -> Verdict:
    bench.leader(topic)
    return judge(sent.acknowledged, read_back(bench.bootstrap_server, topic))


def _sum(parts: list[Verdict]) -> Verdict:
    return Verdict(
        acknowledged=sum(part.acknowledged for part in parts),
        in_log=sum(part.in_log for part in parts),
        lost=sum(part.lost for part in parts),
        doubled=sum(part.doubled for part in parts),
        steps_back=sum(part.steps_back for part in parts),
    )
