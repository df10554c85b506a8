"""The command line of scripts/bench."""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click

from benchmarks.cluster import (
    KAFKA_BOOTSTRAP,
    VARVE_BOOTSTRAP,
    ApacheKafka,
    Cluster,
    ClusterError,
    ForeignCluster,
    VarveCluster,
    known_pids,
    ports_of,
    running,
)
from benchmarks.compare import compare, print_comparison
from benchmarks.driver import BUILD_DIRECTORY, DriverError, find_driver
from benchmarks.measure import Bench, RowResult, Run
from benchmarks.purge import INTERVALS_S, document_of, measure_beside, measure_calls, print_purge
from benchmarks.report import (
    commit,
    console,
    load_document,
    machine,
    merge_documents,
    print_document,
    save_document,
    to_document,
)
from benchmarks.rows import ROW_BY_NAME, ROWS, Kind, Row, rows_of

KINDS = {kind.value: {kind} for kind in Kind} | {"all": set(Kind)}
#: Work by clients, which can be measured on a cluster that runs beside another one.
LOAD_KINDS = (Kind.PRODUCE, Kind.LATENCY, Kind.CONSUME)
WARM_UPS_IN_TURN = 3
Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def log(text: str) -> None:
    click.echo(text, err=True)


def run_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that every measuring command has."""
    options: list[Decorator] = [
        click.option(
            "--runs", default=3, show_default=True, help="Runs per row; the figure is their median."
        ),
        click.option("--seconds", default=5.0, show_default=True, help="Length of a run's measured window."),
        click.option(
            "--format", "output", type=click.Choice(["table", "json"]), default="table", show_default=True
        ),
        click.option(
            "--python-driver", is_flag=True, help="Use confluent-kafka even if the C driver can be built."
        ),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def choose_cluster(name: str, against: str | None, pids: str | None, settings: tuple[str, ...]) -> Cluster:
    if against is None:
        if pids:
            raise click.UsageError("--pids belongs to --against")
        return ApacheKafka(settings) if name == "kafka" else VarveCluster(settings)
    if settings:
        raise click.UsageError("--config is for a cluster that is started, not for --against")
    if not all(address.rpartition(":")[2].isdigit() for address in against.split(",")):
        raise click.UsageError("--against takes addresses: --against localhost:19092,localhost:29092")
    try:
        pid_by_node = {f"pid {int(pid)}": int(pid) for pid in (pids or "").replace(",", " ").split()}
    except ValueError as error:
        raise click.UsageError("--pids takes process ids: --pids 101,102,103") from error
    return ForeignCluster(against, pid_by_node or known_pids(against))


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
    """A document per cluster. All of them run all the while, and each run of one is followed by a run of the next: what
    else the machine does meets them alike. What an idle neighbour costs is in the figures (Kafka: about 0.1 core)."""
    driver = find_driver(python_driver)
    benches = [Bench(cluster, driver, seconds, log) for cluster in clusters]
    results = [{row.name: RowResult(row, []) for row in rows} for _ in benches]
    with ExitStack() as stack:
        for cluster in clusters:
            stack.enter_context(running(cluster))
        # More than once: the JVM's compiler goes on for a while.
        for bench in benches * WARM_UPS_IN_TURN:
            log(f"{bench.cluster.name}: warming up")
            bench.warm_up()
        for row in rows:
            # Round 0 does not count: a JVM compiles anew for other work, and its first row cost it three times the CPU.
            for number in range(runs + 1):
                log(f"round {number} of {runs}" if number else "a round that does not count")
                for bench, result in zip(benches, results, strict=True):
                    # What the side before has written and not flushed is not to reach the disk in this side's run.
                    os.sync()
                    measured = measure_or_mark(bench, row, 1)
                    if number:
                        result[row.name].runs.extend(measured.runs)
    return [
        to_document(header_of(bench, runs), list(result.values()))
        for bench, result in zip(benches, results, strict=True)
    ]


def header_of(bench: Bench, runs: int) -> dict[str, Any]:
    return {
        "cluster": bench.cluster.name,
        "bootstrap": bench.cluster.bootstrap,
        "driver": bench.driver.description,
        "runs": runs,
        "seconds": bench.seconds,
        "command": " ".join(["scripts/bench", *sys.argv[1:]]),
        "commit": commit(),
        "machine": machine(),
    }


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Measure a Kafka-protocol cluster from outside, with librdkafka in a process of its own."""


def add_measuring_command(name: str, kinds: set[Kind]) -> None:
    titles = "; ".join(row.title for row in rows_of(kinds))

    @main.command(name, help=f"Measure: {titles}." if name != "all" else "Measure every row.")
    @click.option(
        "--cluster", "cluster_name", type=click.Choice(["varve", "kafka"]), default="varve", show_default=True
    )
    @click.option("--against", metavar="HOST:PORT", help="Measure a cluster that runs already instead.")
    @click.option("--config", "settings", multiple=True, metavar="KEY=VALUE", help="For each node started.")
    @click.option("--pids", metavar="PID,PID,PID", help="Its brokers' process ids, for CPU and memory.")
    @click.option(
        "--row", "row_names", multiple=True, type=click.Choice([row.name for row in rows_of(kinds)])
    )
    @click.option(
        "--save", type=click.Path(path_type=Path, dir_okay=False), help="Put the rows into this JSON file."
    )
    @run_options
    def command(
        cluster_name: str,
        against: str | None,
        pids: str | None,
        settings: tuple[str, ...],
        row_names: tuple[str, ...],
        save: Path | None,
        runs: int,
        seconds: float,
        output: str,
        python_driver: bool,
    ) -> None:
        cluster = choose_cluster(cluster_name, against, pids, settings)
        rows = [ROW_BY_NAME[row] for row in row_names] or rows_of(kinds)
        document = measure_rows(cluster, rows, runs, seconds, python_driver)
        if save:
            save_document(save, merge_documents(load_document(save), document) if save.exists() else document)
        if output == "json":
            click.echo(json.dumps(document, indent=1))
        else:
            print_document(document, console())
        if any(row["errors"] for row in document["rows"]):
            raise ClusterError("a row has errors: its figures do not count")


for command_name, command_kinds in KINDS.items():
    add_measuring_command(command_name, command_kinds)


@main.command("purge")
@click.option(
    "--cluster", "cluster_name", type=click.Choice(["varve", "kafka"]), default="varve", show_default=True
)
@click.option("--against", metavar="HOST:PORT", help="Measure a cluster that runs already instead.")
@click.option("--config", "settings", multiple=True, metavar="KEY=VALUE", help="For each node started.")
@click.option("--pids", metavar="PID,PID,PID", help="Its brokers' process ids, for CPU.")
@click.option("--partitions", default=100, show_default=True, help="Purged by each call.")
@click.option(
    "--every",
    "intervals_s",
    type=float,
    multiple=True,
    default=INTERVALS_S,
    show_default=True,
    help="Seconds between purges. Repeatable.",
)
@run_options
def purge_command(
    cluster_name: str,
    against: str | None,
    pids: str | None,
    settings: tuple[str, ...],
    partitions: int,
    intervals_s: tuple[float, ...],
    runs: int,
    seconds: float,
    output: str,
    python_driver: bool,
) -> None:
    """Calls of DeleteRecords per second, and producing while many partitions are purged every 100 ms, 1 s and 30 s."""
    cluster = choose_cluster(cluster_name, against, pids, settings)
    if against is None:
        refuse_company(cluster)
    bench = Bench(cluster, find_driver(python_driver), seconds, log)
    with running(cluster):
        bench.warm_up()
        calls = measure_calls(bench, partitions)
        results = measure_beside(bench, partitions, runs, intervals_s)
    if output == "json":
        click.echo(json.dumps(header_of(bench, runs) | document_of(results, calls), indent=1))
    else:
        print_purge(results, calls, partitions, console())
    if any(result.purges.errors for result in results):
        raise ClusterError("a row has errors: its figures do not count")


@main.command("compare")
@click.option(
    "--ours", type=click.Path(path_type=Path), default=BUILD_DIRECTORY / "varve.json", show_default=True
)
@click.option(
    "--theirs", type=click.Path(path_type=Path), default=BUILD_DIRECTORY / "kafka.json", show_default=True
)
@click.option(
    "--in-turn",
    is_flag=True,
    help="Measure both anew, a run of one after a run of the other. Rows of producing and consuming only.",
)
@click.option("--row", "row_names", multiple=True, type=click.Choice(list(ROW_BY_NAME)))
@run_options
def compare_command(
    ours: Path,
    theirs: Path,
    in_turn: bool,
    row_names: tuple[str, ...],
    runs: int,
    seconds: float,
    output: str,
    python_driver: bool,
) -> None:
    """Our rows beside Apache Kafka's, with the bars. Missing files are measured first, ours, then Kafka's."""
    rows = [ROW_BY_NAME[row] for row in row_names] or list(ROWS)
    sides: tuple[tuple[Path, Cluster], ...] = ((ours, VarveCluster()), (theirs, ApacheKafka()))
    if in_turn:
        rows = [row for row in rows if row.kind in LOAD_KINDS]
        documents = measure_in_turn([cluster for _, cluster in sides], rows, runs, seconds, python_driver)
        for (path, _), document in zip(sides, documents, strict=True):
            save_document(path, document)
    for path, cluster in sides:
        if not path.exists():
            save_document(path, measure_rows(cluster, rows, runs, seconds, python_driver))
    documents = [load_document(path) for path, _ in sides]
    comparisons = [
        entry for entry in compare(documents[0], documents[1]) if entry.row in {row.name for row in rows}
    ]
    if output == "json":
        click.echo(json.dumps([{**vars(entry), "ratio": entry.ratio} for entry in comparisons], indent=1))
    else:
        drivers = dict.fromkeys(document["driver"] for document in documents)
        if len(drivers) > 1:
            log(f"the sides had different drivers, their CPU does not compare: {', '.join(drivers)}")
        names = (documents[0]["cluster"], documents[1]["cluster"])
        print_comparison(comparisons, names, console())
    if any(entry.reached is False for entry in comparisons):
        sys.exit(1)


def run() -> None:
    """Exit codes: 0 done, 1 a row failed, has errors or missed its bar, 2 usage."""
    try:
        main(prog_name="scripts/bench")
    except (ClusterError, DriverError, ValueError) as error:
        log(f"bench: {error}")
        sys.exit(1)
