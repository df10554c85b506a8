"""Acknowledgements that are lost on the wire, and producers that die between what they wrote and what they stored."""

from __future__ import annotations

import subprocess
import sys

from pipeline.errors import PipelineError
from pipeline.lab.bench import Bench
from pipeline.lab.proxy import Proxy
from pipeline.lab.sending import Sending, Verdict, judge, read_back, send
from pipeline.report.findings import TableOf, plot_of
from pipeline.report.sweep import Axis, Series, Sweep

_DROP_EVERY = 10
_BATCH_RECORDS = 10
_RESTARTS = 3
_EXIT_TIMEOUT_S = 60


def run(bench: Bench) -> Sweep:
    """Raises PipelineError."""
    wire, on_wire = _lost_acknowledgements(bench)
    restarts, restarted = _restarted_producers(bench)
    bars = [
        (name, float(verdict.doubled))
        for name, verdict in (
            ("acknowledgements lost", on_wire[False]),
            ("the same, idempotent", on_wire[True]),
            ("killed, idempotent", restarted[False]),
            ("killed, transactional", restarted[True]),
        )
    ]
    plot = plot_of(
        "Records doubled",
        Axis("what happened", "", "category"),
        Axis("copies beyond the first", "records", "linear"),
        Series("measured", list(bars), False),
    )
    text = _seen(on_wire, restarted)
    return Sweep("Idempotence", text, [wire.table(), restarts.table()], [plot])


def _seen(on_wire: dict[bool, Verdict], restarted: dict[bool, Verdict]) -> str:
    without, idempotent = on_wire[False], on_wire[True]
    plain, transactional = restarted[False], restarted[True]
    return (
        f"With every {_DROP_EVERY}th acknowledgement lost after the broker wrote, a producer without"
        f" enable.idempotence left {without.doubled:,} copies among {without.acknowledged:,} records, and a log that"
        f" goes back to earlier records at {without.steps_back:,} places; one with it left {idempotent.doubled:,} and"
        f" {idempotent.steps_back:,}. A producer that was killed {_RESTARTS} times and went on from its last stored"
        f" position is another producer to the broker: without a transactional.id {plain.doubled:,} records are there"
        f" twice, with one {transactional.doubled:,}. Missing were {without.lost + idempotent.lost:,} of the"
        f" acknowledged, and {plain.lost + transactional.lost:,} of the copied records."
    )


def _lost_acknowledgements(bench: Bench) -> tuple[TableOf, dict[bool, Verdict]]:
    """By whether the producer is idempotent: what became of its records while acknowledgements were lost."""
    records = 500 if bench.is_quick else 10_000
    columns = (
        "idempotent",
        "answers lost",
        "acked",
        "in the log",
        "doubled",
        "steps back",
        "lost",
    )
    table = TableOf(
        "Acknowledgements lost on the wire",
        columns,
        f"{records:,} records in batches of {_BATCH_RECORDS}, up to five batches in flight. A proxy closes the"
        f" connection in place of each {_DROP_EVERY}th acknowledgement; the client sends again what was in flight.",
    )
    verdicts = {}
    with Proxy(bench.bootstrap_server) as proxy:
        for drop_every in (0, _DROP_EVERY):
            for is_idempotent in (False, True):
                topic = bench.topic("idempotence")
                bench.say(
                    f"{records:,} records, idempotence {is_idempotent}, one of {drop_every} answers lost"
                )
                dropped_before = proxy.answers_dropped
                proxy.set_all(drop_every=drop_every)
                settings = {
                    "enable.idempotence": is_idempotent,
                    "acks": "all",
                    "max.in.flight.requests.per.connection": 5,
                    "batch.num.messages": _BATCH_RECORDS,
                    "retry.backoff.ms": 1,
                    "reconnect.backoff.ms": 1,
                    "reconnect.backoff.max.ms": 100,
                }
                sent = send(Sending(proxy.bootstrap_server, topic, settings, 100, records))
                proxy.set_all()
                verdict = judge(sent.acknowledged, read_back(bench.bootstrap_server, topic))
                dropped = proxy.answers_dropped - dropped_before
                table.add(
                    is_idempotent,
                    dropped,
                    verdict.acknowledged,
                    verdict.in_log,
                    verdict.doubled,
                    verdict.steps_back,
                    verdict.lost,
                )
                verdicts[is_idempotent] = verdict
    return table, verdicts


def _restarted_producers(bench: Bench) -> tuple[TableOf, dict[bool, Verdict]]:
    """By whether the producer has a transactional id: what it left when it was killed again and again."""
    interval = 40 if bench.is_quick else 500
    records = interval * (2 * _RESTARTS + 1)
    table = TableOf(
        "A producer that is killed and goes on",
        ("transactional.id", "kills", "copied", "in the log", "doubled", "missing"),
        f"A process copies {records:,} records with an idempotent producer, and stores its position after each"
        f" {interval}. It is killed (-9) midway between two positions, and started again. Readers are read_committed.",
    )
    source = bench.topic("source")
    send(Sending(bench.bootstrap_server, source, {"enable.idempotence": True}, 20, records))
    verdicts = {}
    for is_transactional in (False, True):
        bench.say(f"copying {records:,} records, killed {_RESTARTS} times, transactional {is_transactional}")
        target = bench.topic("copy")
        for kill in range(_RESTARTS):
            _copy(
                bench, source, target, interval, is_transactional, (2 * kill + 1) * interval + interval // 2
            )
        _copy(bench, source, target, interval, is_transactional, None)
        verdict = judge(list(range(records)), read_back(bench.bootstrap_server, target))
        table.add(is_transactional, _RESTARTS, records, verdict.in_log, verdict.doubled, verdict.lost)
        verdicts[is_transactional] = verdict
    return table, verdicts


def _copy(
    bench: Bench, source: str, target: str, interval: int, is_transactional: bool, until: int | None
) -> None:
    """Run the copier until it has copied so many records, then kill it; None: until it ends by itself."""
    command = [
        sys.executable,
        "-m",
        "pipeline.lab.copier",
        bench.bootstrap_server,
        source,
        target,
        str(interval),
    ]
    if is_transactional:
        command.append(f"{target}-writer")
    with (bench.folder / "copier.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        assert process.stdout is not None, "it was asked for"
        for line in process.stdout:
            if until is not None and int(line) >= until:
                return
        status = process.wait(_EXIT_TIMEOUT_S)
        if status != 0 or until is not None:
            raise PipelineError(f"the copier ended with {status}: see {bench.folder / 'copier.log'}")
    finally:
        process.kill()
        process.wait(_EXIT_TIMEOUT_S)
        if process.stdout is not None:
            process.stdout.close()
