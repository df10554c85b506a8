"""`python -m pipeline stream`."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from pipeline.console import EXIT_FAILED, STDERR, errors_as_exit_code, exit_on_sigterm, say_with_time
from pipeline.options import RATE, RUN_FOLDER, spark_options
from pipeline.report.command import write_report
from pipeline.run_files import LOG
from pipeline.summary import gap_figure, print_checks

if TYPE_CHECKING:
    from pipeline.streaming.driver import Batch
    from pipeline.streaming.feed import Feed
    from pipeline.trials.local_cluster import LocalCluster

_JUDGE_TASKS = 2
# Where there is no terminal for a moving bar.
_LINE_EVERY_S = 10.0
_UNITS_S = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


class Duration(click.ParamType[float]):
    """Seconds, given as 90, 90s, 10m or 1h."""

    name = "duration"

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        parsed = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m|h|)", value)
        if parsed is None or float(parsed[1]) == 0:
            self.fail(f"{value!r}: a time above 0 is wanted, such as 90s, 10m or 1h", param, ctx)
        return float(parsed[1]) * _UNITS_S[parsed[2]]


@click.command("stream")
@click.option(
    "--bootstrap-server", metavar="HOST:PORT,...", help="Stream through this cluster; no broker is killed."
)
@click.option(
    "--duration", type=Duration(), default="2m", show_default=True, help="How long records are fed."
)
@click.option("--rate", type=RATE, default=1000.0, show_default=True, help="Records per second.")
@click.option("--record-size", default=200, show_default=True, help="Bytes of each value that is fed.")
@click.option("--keys", default=100, show_default=True, type=click.IntRange(min=1), help="Distinct keys.")
@click.option("--seed", default=1, show_default=True, help="Decides the records, with the time of the start.")
@click.option(
    "--sink",
    type=click.Choice(["kafka", "varve"]),
    default="kafka",
    show_default=True,
    help='kafka: Spark\'s official sink, at least once; varve: format("varve"), exactly once.',
)
@click.option("--trigger", type=Duration(), default="500ms", show_default=True, help="From batch to batch.")
@click.option("--kill-every", type=Duration(), help="Kill -9 a broker so often, and start it again.")
@click.option("--restart-driver", is_flag=True, help="Kill -9 the queries' own process in the middle.")
@click.option("--warm-up", default=10, show_default=True, help="Seconds left out of the latency figures.")
@click.option("--partitions", default=3, show_default=True, type=click.IntRange(min=1), help="Of each topic.")
@click.option("--replication-factor", default=3, show_default=True, type=click.IntRange(min=1))
@click.option("--base-dir", default=".varve/stream", show_default=True, type=click.Path(path_type=Path))
@click.option("--out", type=RUN_FOLDER, help="The run's folder.  [default: runs/stream-TIME]")
@spark_options
def stream_command(
    bootstrap_server: str | None,
    duration: float,
    rate: float,
    record_size: int,
    keys: int,
    seed: int,
    sink: Any,
    trigger: float,
    kill_every: float | None,
    restart_driver: bool,
    warm_up: int,
    partitions: int,
    replication_factor: int,
    base_dir: Path,
    out: Path | None,
    master: str | None,
    conf: dict[str, str],
) -> None:
    """Run streaming queries from topic to topic, under faults, and judge every record.

    One query transforms each record, another counts them by key and window. Without --bootstrap-server they run on
    three brokers that are started for it.
    """
    if kill_every is not None and bootstrap_server is not None:
        raise click.UsageError(
            "--kill-every kills brokers of a cluster of our own: leave out --bootstrap-server"
        )
    run = out or Path("runs") / time.strftime("stream-%Y%m%d-%H%M%S")
    say = say_with_time()
    exit_on_sigterm()
    with errors_as_exit_code(run / LOG):
        from pipeline.load.job import make_run_folder
        from pipeline.spark.connector import find_connector
        from pipeline.spark.java_runtime import find_java
        from pipeline.spark.session import SparkOptions, spark_session
        from pipeline.streaming.job import StreamOptions, conclude, stream
        from pipeline.trials.local_cluster import local_cluster

        _check_figures(duration, rate, record_size, kill_every)
        # First of all: to learn of a missing Java or connector after a minute would be unkind.
        say(f"Spark will run on {find_java().description}")
        connector = find_connector()
        make_run_folder(run)
        name = f"stream-{int(time.time())}"
        own: AbstractContextManager[LocalCluster | None] = (
            local_cluster(base_dir, say, run) if bootstrap_server is None else nullcontext()
        )
        with own as cluster:
            bootstrap = cluster.bootstrap_server if cluster else bootstrap_server
            assert bootstrap is not None, "given, or that of the cluster just started"
            options = StreamOptions(
                bootstrap, run, duration, rate, keys, seed, record_size, sink, round(trigger * 1000),
                warm_up, kill_every, restart_driver, partitions, replication_factor,
                SparkOptions(master, conf),
            )  # fmt: skip
            records = options.spec(name, 0).records
            with _progress(records, say) as watcher:
                streamed = stream(options, name, cluster, say, watcher)
            say("judging: reading all three topics back")
            with spark_session(
                run / LOG, _JUDGE_TASKS, records=records, connector=connector, options=options.where
            ) as spark:
                figures, verdict = conclude(spark, options, streamed, connector.source)
            if cluster:
                cluster.keeps_data = not verdict.passed
        _print_result(Console(), run, figures, [check.to_json() for check in verdict.checks])
        click.echo(f"The same as a page, with plots: {write_report(run)}")
    if not verdict.passed:
        sys.exit(EXIT_FAILED)


def _check_figures(
    duration_s: float, rate_per_s: float, record_size_bytes: int, kill_every_s: float | None
) -> None:
    """Before anything is started. Raises UsageError."""
    from pipeline.streaming.spec import MIN_RECORD_SIZE_BYTES

    if duration_s * rate_per_s < 1:
        raise click.UsageError("the stream has no records: give it a longer --duration or a higher --rate")
    if kill_every_s is not None and kill_every_s >= duration_s:
        raise click.UsageError("nothing would be killed: --kill-every must be shorter than --duration")
    if record_size_bytes < MIN_RECORD_SIZE_BYTES:
        raise click.UsageError(f"record size must be at least {MIN_RECORD_SIZE_BYTES} bytes")


@contextmanager
def _progress(records: int, say: Callable[[str], None]) -> Iterator[Callable[[Feed, list[Batch]], None]]:
    """Two bars on a terminal, of what is fed and what the first query has read; elsewhere a line now and then."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    started = time.monotonic()
    said_at = started
    with Progress(*columns, console=STDERR, disable=not STDERR.is_terminal) as bar:
        fed, read = bar.add_task("fed", total=records), bar.add_task("transformed", total=records)

        def show(feed: Feed, batches: list[Batch]) -> None:
            nonlocal said_at
            transforming = [batch for batch in list(batches) if batch["query"] == "transform"]
            done = sum(batch["records"] for batch in transforming)
            last = transforming[-1] if transforming else None
            of_last = f", last batch {last['records']:,} in {last['duration_ms']:,} ms" if last else ""
            failed = f", {feed.failed:,} failed" if feed.failed else ""
            bar.update(fed, completed=feed.acknowledged, description=f"fed{failed}")
            bar.update(read, completed=done, description=f"transformed{of_last}")
            now = time.monotonic()
            if bar.disable and now - said_at >= _LINE_EVERY_S:
                rates = [f"{count / (now - started):,.0f}/s" for count in (feed.acknowledged, done)]
                said_at = now
                say(
                    f"fed {feed.acknowledged:,} ({rates[0]}{failed}), transformed {done:,} ({rates[1]}){of_last}"
                )

        yield show


def _print_result(console: Console, run: Path, stream: dict[str, Any], checks: list[dict[str, Any]]) -> None:
    print_checks(console, "What was fed, and what came out", checks)
    table = Table(title=f"Stream ({run})", title_justify="left", show_header=False)
    for name, figure in _rows(stream):
        table.add_row(name, figure)
    console.print(table)


def _rows(stream: dict[str, Any]) -> list[tuple[str, str]]:
    rows = [
        ("records", f"{stream['records']:,}"),
        ("acknowledged / came out", f"{stream['acknowledged']:,} / {stream['arrived']:,}"),
        ("repeated by a restarted batch", f"{stream['repeated']:,}"),
        ("throughput", f"{stream['records_per_s']:,.0f} records/s over {stream['duration_s']:,.1f} s"),
    ]
    # A run shorter than its warm-up has only the figures with it.
    if latency := stream["latency_ms"] or stream["latency_ms_with_warm_up"]:
        figures = " / ".join(f"{latency[name]:,.0f}" for name in ("p50", "p99", "p99.9", "max"))
        rows.append(("latency p50 / p99 / p99.9 / max", f"{figures} ms"))
    if batch_ms := stream["batch_ms"]:
        figures = f"{batch_ms['p50']:,} / {batch_ms['max']:,} ms of {stream['batches']:,}"
        rows.append(("batch duration p50 / max", figures))
    if gap := stream["longest_gap"]:
        rows.append(("longest time without output", gap_figure(gap)))
    rows.append(("brokers / drivers killed", f"{stream['broker_kills']:,} / {stream['driver_kills']:,}"))
    return rows
