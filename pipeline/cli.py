"""`python -m pipeline`: load a cluster, verify what it kept, or both with brokers broken in the middle.

Exit codes: 0 all well; 1 records not acknowledged, or a check failed; 2 the job could not be done; 130 Ctrl-C.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import takewhile
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import unquote, urlsplit

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Task, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as ProgressBar
from rich.text import Text

from pipeline.errors import PipelineError
from pipeline.run_files import DELIVERIES, LOG, is_written

if TYPE_CHECKING:
    from pipeline.progress import Progress

# Spark and its friends take a second to import: only the commands that need them do.

# One console for all that is not a result: lines printed above a moving progress bar must go through it.
STDERR = Console(stderr=True)

EXIT_FAILED = 1
EXIT_NOT_DONE = 2
EXIT_INTERRUPTED = 128 + signal.SIGINT
_DEFAULT_RATE_PER_S = 5000.0
_TOLD_LINES = 12


class RunFolder(click.ParamType[Path]):
    """A folder on a file system of this machine, which may be a shared one: a path, or a `file:` URI."""

    name = "folder"

    def convert(self, value: str | Path, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        if isinstance(value, Path):
            return value
        uri = urlsplit(value)
        if uri.scheme == "file" and uri.netloc in ("", "localhost"):
            return Path(unquote(uri.path))
        if uri.scheme:
            self.fail(f"{value!r}: only a folder that is mounted here can hold a run", param, ctx)
        return Path(value)


RUN_FOLDER = RunFolder()
RATE = click.FloatRange(min=0, min_open=True)
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


def _settings(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    settings = dict(value.partition("=")[::2] for value in values)
    if any("=" not in value for value in values):
        raise click.BadParameter("a setting is KEY=VALUE, e.g. spark.cores.max=4")
    return settings


SPARK = (
    click.option(
        "--master", help="Spark's master: spark://HOST:PORT, yarn, k8s://...  [default: this machine]"
    ),
    click.option(
        "--conf",
        multiple=True,
        metavar="KEY=VALUE",
        callback=_settings,
        help="A setting of Spark; repeatable.",
    ),
)


def spark_options(command: Callable[..., None]) -> Callable[..., None]:
    """The options that say where Spark runs."""
    for option in reversed(SPARK):
        command = option(command)
    return command


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
@click.option("--rate", type=RATE, help="Records per second over all producers.  [default: 5000]")
@click.option("--max", "as_fast_as_possible", is_flag=True, help="As fast as the cluster takes them.")
@sizes
@click.option("--linger-ms", default=5.0, show_default=True, help="How long a batch waits to fill.")
@click.option("--message-timeout-ms", default=120_000, show_default=True, help="When a record is given up.")
@click.option("--warm-up", default=2, show_default=True, help="Seconds left out of the latency figures.")
@click.option("--partitions", default=3, show_default=True, help="Of a topic that is created.")
@click.option("--replication-factor", default=3, show_default=True, help="Of a topic that is created.")
@click.option("--out", required=True, type=RUN_FOLDER, help="The run's folder, e.g. runs/001.")
@spark_options
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
    master: str | None,
    conf: dict[str, str],
) -> None:
    """Send records that follow from --seed alone, and note each acknowledgement."""
    if rate is not None and as_fast_as_possible:
        raise click.UsageError("--rate and --max exclude each other")
    with errors_as_exit_code(out / LOG):
        from pipeline.cluster import Cluster
        from pipeline.load import LoadOptions, load, make_run_folder
        from pipeline.records import RunSpec
        from pipeline.session import SparkOptions, spark_session
        from pipeline.summary import print_load

        rate_per_s = None if as_fast_as_possible else rate or _DEFAULT_RATE_PER_S
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
        make_run_folder(out)
        # Before Spark, which takes ten seconds to start.
        Cluster(bootstrap_server).topic(topic)
        where = SparkOptions(master, conf)
        with (
            spark_session(out / LOG, producers, records=records, options=where) as spark,
            load_bar(records) as bar,
        ):
            figures = load(spark, spec, options, bar)
        print_load(Console(), f"Load of {topic} ({out})", figures)
        if figures["interrupted"]:
            raise KeyboardInterrupt
    if figures["acknowledged"] < records:
        sys.exit(EXIT_FAILED)


@main.command("verify")
@click.option("--run", required=True, type=RUN_FOLDER, help="The folder that load wrote.")
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
@spark_options
def verify_command(
    run: Path,
    bootstrap_server: str,
    connector: Any,
    connector_jars: Path | None,
    tasks: int,
    master: str | None,
    conf: dict[str, str],
) -> None:
    """Read everything back, and check it against what was acknowledged."""
    console = Console()
    with errors_as_exit_code(run / LOG):
        from pipeline.connector import choose_connector
        from pipeline.records import RunSpec
        from pipeline.session import SparkOptions, spark_session
        from pipeline.summary import print_checks
        from pipeline.verify import VerifyOptions, check_is_loaded, verify

        check_is_loaded(run)
        chosen = choose_connector(connector, connector_jars, warn)
        records = RunSpec.of_run(run).records
        where = SparkOptions(master, conf)
        with spark_session(run / LOG, tasks, records=records, connector=chosen, options=where) as spark:
            figures = verify(spark, VerifyOptions(run, bootstrap_server), chosen)
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
        _leave_interrupted(log.parent)
    except Exception as error:
        # Spark's and Py4J's own trees; the lines before Java's stack tell, the log has the rest.
        lines = str(error).strip().splitlines() or [type(error).__name__]
        told = takewhile(lambda line: not line.startswith("\tat "), lines[:_TOLD_LINES])
        click.echo(
            f"pipeline: the job failed: {' '.join(map(str.strip, told))}\n    (details: {log})", err=True
        )
        with suppress(OSError), log.open("a") as details:  # the first lines are said above
            details.write(f"{error}\n")
        sys.exit(EXIT_NOT_DONE)


def _leave_interrupted(run: Path) -> NoReturn:
    """A run says that it was interrupted, and one that has its acknowledgements can be verified for them."""
    from pipeline.summary import update_summary

    if run.is_dir():
        update_summary(run, "interrupted", {"at": time.strftime("%Y-%m-%dT%H:%M:%S%z")})
    click.echo("pipeline: interrupted", err=True)
    if is_written(run / DELIVERIES):
        click.echo(
            f"What was acknowledged can be verified: python -m pipeline verify --run {run} ...", err=True
        )
    sys.exit(EXIT_INTERRUPTED)


class _RecordsColumn(MofNCompleteColumn):
    """How many of all; nothing for a phase, which counts nothing."""

    def render(self, task: Task) -> Text:
        return Text() if task.fields.get("is_phase") else super().render(task)


class LoadBar:
    """Progress bars of a load: of its acknowledged records, then one that only moves for each later phase."""

    def __init__(self, bar: ProgressBar, records: int) -> None:
        self._bar = bar
        self._records = records
        self._task = bar.add_task("acknowledged", total=records)
        self._phase: TaskID | None = None

    def progressed(self, progress: Progress) -> None:
        failed = f", {progress.failed:,} failed" if progress.failed else ""
        self._bar.update(self._task, completed=progress.acknowledged, description=f"acknowledged{failed}")

    def begins(self, phase: str) -> None:
        self._bar.stop_task(self._task)
        self.end_phase()
        self._phase = self._bar.add_task(phase, total=None, is_phase=True)

    def end_phase(self) -> None:
        if self._phase is not None:
            self._bar.update(self._phase, total=1, completed=1)


@contextmanager
def load_bar(records: int) -> Iterator[LoadBar]:
    columns = (TextColumn("{task.description}"), BarColumn(), _RecordsColumn(), TimeElapsedColumn())
    with ProgressBar(*columns, console=STDERR) as bar:
        shown = LoadBar(bar, records)
        yield shown
        shown.end_phase()
