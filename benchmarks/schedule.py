"""In which order rows are measured: on one cluster alone, or on two in turn."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from benchmarks.cluster import (
    KAFKA_BOOTSTRAP,
    VARVE_BOOTSTRAP,
    Cluster,
    ClusterError,
    ports_of,
    running,
)
from benchmarks.driver import DriverError, find_driver
from benchmarks.measure import Bench
from benchmarks.report import commit, log, machine, to_document
from benchmarks.results import RowResult, Run
from benchmarks.rows import Kind, Row

#: Work by clients, which can be measured on a cluster that runs beside another one.
LOAD_KINDS = (Kind.PRODUCE, Kind.LATENCY, Kind.CONSUME)
WARM_UPS_IN_TURN = 3


def refuse_company(cluster: Cluster) -> None:
    """Two clusters on one machine measure each other."""
    for name, bootstrap in (("Varve", VARVE_BOOTSTRAP), ("Apache Kafka", KAFKA_BOOTSTRAP)):
        ports = ports_of(bootstrap)
        if not ports & ports_of(cluster.bootstrap) and any(is_listening(port) for port in sorted(ports)):
            raise ClusterError(
                f"{name} runs on this machine: take it down first, or the clusters measure each other"
            )


def is_listening(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def measure_or_mark(bench: Bench, row: Row, runs: int) -> RowResult:
    """A row that cannot be finished is a row with an error: the others are measured all the same."""
    try:
        return bench.measure(row, runs)
    except (ClusterError, DriverError) as error:
        log(f"{row.name}: {error}")
        return RowResult(row, [Run({}, errors=1, note=str(error))])


def measure_rows(
    cluster: Cluster, rows: list[Row], runs: int, seconds: float, python_driver: bool
) -> dict[str, Any]:
    """Measure and return the document. Start-up rows come first: they start and stop the cluster themselves."""
    refuse_company(cluster)
    bench = Bench(cluster, find_driver(python_driver), seconds, log)
    results: dict[str, RowResult] = {
        row.name: measure_or_mark(bench, row, runs) for row in rows if row.kind is Kind.STARTUP
    }
    others = [row for row in rows if row.kind is not Kind.STARTUP]
    if others:
        with running(cluster):
            if any(row.kind in LOAD_KINDS for row in others):
                log(f"{cluster.name}: warming up")
                bench.warm_up()
            for row in others:
                results[row.name] = measure_or_mark(bench, row, runs)
    return to_document(header_of(bench, runs), [results[row.name] for row in rows])


def measure_in_turn(
    clusters: Sequence[Cluster], rows: list[Row], runs: int, seconds: float, python_driver: bool
) -> list[dict[str, Any]]:
    """Measure each row on all clusters, a run of one after a run of the other; a document per cluster.

    All clusters run all the while, but for the start-up rows, which come first. What else the machine does meets
    them alike. What an idle neighbour costs is in the figures (Kafka: about 0.1 core).
    """
    driver = find_driver(python_driver)
    benches = [Bench(cluster, driver, seconds, log) for cluster in clusters]
    results = [{row.name: RowResult(row, []) for row in rows} for _ in benches]
    for row in rows:
        if row.kind is Kind.STARTUP:
            _measure_rounds(benches, [result[row.name] for result in results], runs)
    others = [row for row in rows if row.kind is not Kind.STARTUP]
    with ExitStack() as stack:
        for bench in benches if others else []:
            stack.enter_context(running(bench.cluster))
        # More than once: the JVM's compiler goes on for a while.
        for bench in benches * WARM_UPS_IN_TURN if others else []:
            log(f"{bench.cluster.name}: warming up")
            bench.warm_up()
        for row in others:
            _measure_rounds(benches, [result[row.name] for result in results], runs)
    return [
        to_document(header_of(bench, runs), list(result.values()))
        for bench, result in zip(benches, results, strict=True)
    ]


def _measure_rounds(benches: Sequence[Bench], results: Sequence[RowResult], runs: int) -> None:
    """The runs of one row. Every other round begins with the last cluster, so that none is always the first."""
    sides = list(zip(benches, results, strict=True))
    # Round 0 does not count: a JVM compiles anew for other work, and its first row cost it three times the CPU.
    for number in range(runs + 1):
        log(f"round {number} of {runs}" if number else "a round that does not count")
        for bench, result in sides if number % 2 else reversed(sides):
            # What the side before has written and not flushed is not to reach the disk in this side's run.
            os.sync()
            measured = measure_or_mark(bench, result.row, 1)
            if number:
                result.runs.extend(measured.runs)


def header_of(bench: Bench, runs: int) -> dict[str, Any]:
    return {
        "cluster": bench.cluster.name,
        "bootstrap": bench.cluster.bootstrap,
        "driver": bench.driver.description,
        "runs": runs,
        "seconds": bench.seconds,
        "command": " ".join(["scripts/bench", *sys.argv[1:]]),
        "commit": commit(bench.cluster.checkout),
        "machine": machine(),
    }
