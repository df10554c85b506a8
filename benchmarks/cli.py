"""The command line of scripts/bench."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from benchmarks import internal_logs
from benchmarks.builds import changes, print_changes
from benchmarks.cluster import (
    ApacheKafka,
    Cluster,
    ClusterError,
    ForeignCluster,
    VarveCluster,
    known_pids,
    running,
)
from benchmarks.compaction import (
    DATA,
    KAFKA_SETTINGS,
    measure_pass,
    measure_producing,
    print_passes,
    print_windows,
)
from benchmarks.compaction import document_of as document_of_passes
from benchmarks.compare import compare, print_comparison
from benchmarks.driver import BUILD_DIRECTORY, DriverError, find_driver
from benchmarks.measure import Bench
from benchmarks.metrics import create_partitions, measure_scrapes, print_metrics
from benchmarks.metrics import document_of as document_of_metrics
from benchmarks.metrics import measure_producing as measure_producing_scraped
from benchmarks.purge import INTERVALS_S, document_of, measure_beside, measure_calls, print_purge
from benchmarks.report import (
    console,
    load_document,
    log,
    merge_documents,
    print_document,
    save_document,
)
from benchmarks.rows import ROW_BY_NAME, ROWS, Kind, Row, rows_of
from benchmarks.schedule import LOAD_KINDS, header_of, measure_in_turn, measure_rows, refuse_company
from benchmarks.transactions import document_of as document_of_transactions
from benchmarks.transactions import measure_transactions, print_transactions

KINDS = {kind.value: {kind} for kind in Kind} | {"all": set(Kind)}
Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


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


@main.command("txn")
@click.option(
    "--cluster", "cluster_name", type=click.Choice(["varve", "kafka"]), default="varve", show_default=True
)
@click.option("--beside-kafka", is_flag=True, help="Measure Apache Kafka behind it, and show both.")
@click.option("--against", metavar="HOST:PORT", help="Measure a cluster that runs already instead.")
@click.option("--config", "settings", multiple=True, metavar="KEY=VALUE", help="For each node started.")
@click.option("--pids", metavar="PID,PID,PID", help="Its brokers' process ids, for CPU.")
@run_options
def txn_command(
    cluster_name: str,
    beside_kafka: bool,
    against: str | None,
    pids: str | None,
    settings: tuple[str, ...],
    runs: int,
    seconds: float,
    output: str,
    python_driver: bool,
) -> None:
    """Transactions per second, what a commit takes, and exactly-once throughput of consume, transform, produce."""
    clusters = [choose_cluster(cluster_name, against, pids, settings)]
    if beside_kafka:
        clusters.append(ApacheKafka())
    sides, document = {}, {}
    for cluster in clusters:
        if against is None:
            refuse_company(cluster)
        bench = Bench(cluster, find_driver(python_driver), seconds, log)
        with running(cluster):
            bench.warm_up()
            rows = sides[cluster.name] = measure_transactions(bench, runs)
            document[cluster.name] = header_of(bench, runs) | document_of_transactions(rows)
    if output == "json":
        click.echo(json.dumps(document, indent=1))
    else:
        print_transactions(sides, console())


@main.command("compaction")
@click.option("--beside-kafka", is_flag=True, help="Measure Apache Kafka behind it, and show both.")
@click.option(
    "--beside-produce", is_flag=True, help="What it costs a producer of 1 KB in 16 KB batches instead."
)
@click.option("--seconds", default=5.0, show_default=True, help="With --beside-produce: of each window.")
@click.option("--rounds", default=3, show_default=True, help="With --beside-produce: passes.")
@click.option("--share", type=click.FloatRange(0.001, 1), default=1, show_default=True, help="Of the data.")
@click.option("--config", "settings", multiple=True, metavar="KEY=VALUE", help="For each node of Varve.")
@click.option("--format", "output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def compaction_command(
    beside_kafka: bool,
    beside_produce: bool,
    seconds: float,
    rounds: int,
    share: float,
    settings: tuple[str, ...],
    output: str,
) -> None:
    """One pass of compaction over a large log: MB/s, memory, what it costs a producer."""
    if beside_produce:
        varve = VarveCluster(settings)
        refuse_company(varve)
        bench = Bench(varve, find_driver(False), seconds, log)
        with running(varve):
            windows = measure_producing(
                bench, varve, DATA[1].part(share), ROW_BY_NAME["produce-1k-16k"], rounds
            )
        print_windows(windows, console())
        return
    clusters: list[VarveCluster | ApacheKafka] = [VarveCluster(settings)]
    if beside_kafka:
        clusters.append(ApacheKafka(KAFKA_SETTINGS))
    sides = {}
    for cluster in clusters:
        refuse_company(cluster)
        with running(cluster):
            sides[cluster.name] = [measure_pass(cluster, data.part(share), log) for data in DATA]
    if output == "json":
        click.echo(json.dumps({name: document_of_passes(rows) for name, rows in sides.items()}, indent=1))
    else:
        print_passes(sides, console())


@main.command("metrics")
@click.option("--partitions", type=click.IntRange(1), default=1000, show_default=True)
@click.option("--runs", type=click.IntRange(1), default=20, show_default=True, help="Scrapes.")
@click.option("--rounds", type=click.IntRange(1), default=9, show_default=True, help="Windows with scrapes.")
@click.option("--seconds", default=3.0, show_default=True, help="Of each window.")
@click.option("--format", "output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def metrics_command(partitions: int, runs: int, rounds: int, seconds: float, output: str) -> None:
    """What a scrape of many partitions takes, and what scrapes cost who is served meanwhile."""
    cluster = VarveCluster()
    refuse_company(cluster)
    with running(cluster):
        create_partitions(cluster, partitions)
        log(f"scraping {partitions} partitions")
        scrapes = measure_scrapes(cluster, "1", partitions, runs)
        bench = Bench(cluster, find_driver(False), seconds, log)
        windows = measure_producing_scraped(bench, cluster, ROW_BY_NAME["produce-1k-16k"], rounds)
    if output == "json":
        click.echo(json.dumps(document_of_metrics(scrapes, windows), indent=1))
    else:
        print_metrics(scrapes, windows, console())


@main.command("internal-logs")
@click.option("--changes", type=click.IntRange(1), default=200_000, show_default=True, help="Of one setting.")
@click.option("--commits", type=click.IntRange(1), default=2_000_000, show_default=True, help="Of offsets.")
def internal_logs_command(changes: int, commits: int) -> None:
    """How large the internal logs of Varve become, and how long a start takes then."""
    cluster = VarveCluster(internal_logs.SETTINGS)
    refuse_company(cluster)
    with running(cluster):
        stages = internal_logs.measure_internal_logs(cluster, changes, commits, log)
    internal_logs.print_stages(stages, console())


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
@click.option(
    "--against",
    "checkout",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Not with Kafka, but with the Varve of this other checkout, by its .venv/bin/varve. All rows, always in turn.",
)
@click.option("--row", "row_names", multiple=True, type=click.Choice(list(ROW_BY_NAME)))
@run_options
def compare_command(
    ours: Path,
    theirs: Path,
    in_turn: bool,
    checkout: Path | None,
    row_names: tuple[str, ...],
    runs: int,
    seconds: float,
    output: str,
    python_driver: bool,
) -> None:
    """Our rows beside Apache Kafka's, with the bars. Missing files are measured first, ours, then Kafka's.

    With --against the rows stand beside those of another commit, and what is more than 5 % worse is marked.
    """
    rows = [ROW_BY_NAME[row] for row in row_names] or list(ROWS)
    if checkout is not None:
        compare_builds(checkout, rows, runs, seconds, output, python_driver)
        return
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


def compare_builds(
    checkout: Path, rows: list[Row], runs: int, seconds: float, output: str, python_driver: bool
) -> None:
    """Measure this checkout's Varve and another's in turn, and show what has changed. Ends with 1 if a row is worse."""
    clusters = (VarveCluster(), VarveCluster.of_checkout(checkout))
    documents = measure_in_turn(clusters, rows, runs, seconds, python_driver)
    for name, document in zip(("ours", "theirs"), documents, strict=True):
        save_document(BUILD_DIRECTORY / f"builds-{name}.json", document)
    found = changes(*documents)
    if output == "json":
        click.echo(json.dumps([{**vars(change), "ratio": change.ratio} for change in found], indent=1))
    else:
        print_changes(found, (documents[0]["commit"], documents[1]["commit"]), console())
    if any(change.is_worse or not change.is_valid for change in found):
        sys.exit(1)


def run() -> None:
    """Exit codes: 0 done, 1 a row failed, has errors or missed its bar, 2 usage."""
    try:
        main(prog_name="scripts/bench")
    except (ClusterError, DriverError, ValueError) as error:
        log(f"bench: {error}")
        sys.exit(1)
