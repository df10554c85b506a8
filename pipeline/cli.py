"""`python -m pipeline`: load a cluster, verify what it kept, or both with brokers broken in the middle.

Exit codes: 0 all well; 1 records not acknowledged, or a check failed; 2 the job could not be done; 130 Ctrl-C.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as ProgressBar

from pipeline.errors import PipelineError

if TYPE_CHECKING:
    from pipeline.progress import Progress

# Spark and its friends take a second to import: only the commands that need them do.

# One console for all that is not a result: lines printed above a moving progress bar must go through it.
STDERR = Console(stderr=True)

EXIT_FAILED = 1
EXIT_NOT_DONE = 2
EXIT_INTERRUPTED = 128 + signal.SIGINT
_LOG = "spark.log"

BOOTSTRAP_SERVER = click.option(
    "--bootstrap-server", required=True, metavar="HOST:PORT,...", help="Where the cluster answers."
)
SIZES = (
    click.option("--record-size", default=1024, show_default=True, help="Bytes of each value."),
    click.option("--keys", default=1000, show_default=True, help="Distinct keys."),
    click.option("--producers", default=2, show_default=True, help="Producers, each owning its keys."),
    click.option("--seed", default=1, show_default=True, help="Decides all records."),
    click.option(
        "--compression",
        type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
        default="none",
        show_default=True,
    ),
)


def sizes(command: Callable[..., None]) -> Callable[..., None]:
    """The options that describe a run's records."""
    for option in reversed(SIZES):
        command = option(command)
    return command


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Load a Kafka-protocol cluster from Spark, and prove what it kept."""


@main.command("load")
@BOOTSTRAP_SERVER
@click.option("--topic", required=True, help="Created if it does not exist.")
@click.option("--records", default=100_000, show_default=True, type=click.IntRange(min=1))
@click.option("--rate", type=float, help="Records per second over all producers.  [default: 5000]")
@click.option("--max", "as_fast_as_possible", is_flag=True, help="As fast as the cluster takes them.")
@sizes
@click.option("--linger-ms", default=5.0, show_default=True, help="How long a batch waits to fill.")
@click.option("--message-timeout-ms", default=120_000, show_default=True, help="When a record is given up.")
@click.option("--warm-up", default=2, show_default=True, help="Seconds left out of the latency figures.")
@click.option("--partitions", default=3, show_default=True, help="Of a topic that is created.")
@click.option("--replication-factor", default=3, show_default=True, help="Of a topic that is created.")
@click.option(
    "--out", required=True, type=click.Path(path_type=Path), help="The run's folder, e.g. runs/001."
)
def load_command(
    bootstrap_server: str,
    topic: str,
    records: int,
    rate: float | None,
    as_fast_as_possible: bool,
    record_size: int,
    keys: int,
    producers: int,
    seed: int,
    compression: str,
    linger_ms: float,
    message_timeout_ms: int,
    warm_up: int,
    partitions: int,
    replication_factor: int,
    out: Path,
) -> None:
    """Send records that follow from --seed alone, and note each acknowledgement."""
    if rate is not None and as_fast_as_possible:
        raise click.UsageError("--rate and --max exclude each other")
    with errors_as_exit_code(out / _LOG):
        from pipeline.cluster import Cluster
        from pipeline.load import LoadOptions, check_is_new, load
        from pipeline.records import RunSpec
        from pipeline.session import spark_session
        from pipeline.summary import print_load

        rate_per_s = None if as_fast_as_possible else rate or 5000.0
        now_ms = int(time.time() * 1000)
        try:
            spec = RunSpec(topic, records, seed, record_size, keys, producers, rate_per_s, now_ms)
        except ValueError as error:
            raise click.UsageError(str(error)) from error
        options = LoadOptions(
            bootstrap_server,
            out,
            compression,
            linger_ms,
            message_timeout_ms,
            warm_up,
            partitions,
            replication_factor,
        )
        check_is_new(out)
        # Before Spark, which takes ten seconds to start.
        Cluster(bootstrap_server).topic(topic)
        with spark_session(out / _LOG, producers, records=records) as spark, load_bar(records) as report:
            figures = load(spark, spec, options, report)
        print_load(Console(), f"Load of {topic} ({out})", figures)
    if figures["acknowledged"] < records:
        sys.exit(EXIT_FAILED)


@main.command("verify")
@click.option("--run", required=True, type=click.Path(path_type=Path), help="The folder that load wrote.")
@BOOTSTRAP_SERVER
@click.option(
    "--connector",
    type=click.Choice(["auto", "jvm", "python"]),
    default="auto",
    show_default=True,
    help="jvm: Spark's official connector; python: confluent-kafka; auto: jvm, or else python with a warning.",
)
@click.option(
    "--connector-jars",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="A folder with the connector's jars, where they cannot be downloaded.",
)
@click.option("--tasks", default=2, show_default=True, help="Spark tasks at once.")
def verify_command(
    run: Path, bootstrap_server: str, connector: Any, connector_jars: Path | None, tasks: int
) -> None:
    """Read everything back, and check it against what was acknowledged."""
    console = Console()
    with errors_as_exit_code(run / _LOG):
        from pipeline.records import RunSpec
        from pipeline.session import spark_session
        from pipeline.summary import print_checks
        from pipeline.verify import VerifyOptions, check_is_loaded, verify

        check_is_loaded(run)
        with spark_session(run / _LOG, tasks, records=RunSpec.of_run(run).records) as spark:
            options = VerifyOptions(run, bootstrap_server, connector, connector_jars)
            figures = verify(spark, options, warn)
        print_checks(
            console, f"{figures['records_read']:,} records read by {figures['read_by']}", figures["checks"]
        )
    if not figures["passed"]:
        sys.exit(EXIT_FAILED)


def warn(text: str) -> None:
    STDERR.print(text, style="bold yellow", markup=False, highlight=False, soft_wrap=True)


def say_with_time() -> Callable[[str], None]:
    """A function that prints a line with the time since now."""
    started = time.monotonic()

    def say(text: str) -> None:
        line = f"[{time.monotonic() - started:6.1f} s] {text}"
        STDERR.print(line, markup=False, highlight=False, soft_wrap=True)

    return say


def exit_on_sigterm() -> None:
    """Make SIGTERM an exception, so that what was started is stopped on the way out."""

    def leave(number: int, _: FrameType | None) -> NoReturn:
        sys.exit(128 + number)

    signal.signal(signal.SIGTERM, leave)


@contextmanager
def errors_as_exit_code(log: Path) -> Iterator[None]:
    """Say in plain words what kept the job from being done, and exit with code 2."""
    try:
        yield
    except PipelineError as error:
        click.echo(f"pipeline: {error}", err=True)
        sys.exit(EXIT_NOT_DONE)
    except click.ClickException:
        raise
    except KeyboardInterrupt:
        click.echo("pipeline: interrupted", err=True)
        sys.exit(EXIT_INTERRUPTED)
    except Exception as error:
        # Spark's and Py4J's own trees; the first line tells, the log has the rest.
        lines = str(error).strip().splitlines() or [type(error).__name__]
        click.echo(f"pipeline: the job failed: {' '.join(lines[:2])}\n    (details: {log})", err=True)
        with log.open("a") as details:
            details.write(f"{error}\n")
        sys.exit(EXIT_NOT_DONE)


@contextmanager
def load_bar(records: int) -> Iterator[Callable[[Progress], None]]:
    """A progress bar of acknowledged records; gives the function that moves it."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with ProgressBar(*columns, console=STDERR) as bar:
        task = bar.add_task("acknowledged", total=records)

        def report(progress: Progress) -> None:
            failed = f", {progress.failed:,} failed" if progress.failed else ""
            bar.update(task, completed=progress.acknowledged, description=f"acknowledged{failed}")

        yield report
