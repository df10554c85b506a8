"""The fault test: each scenario of `pipeline.trials.faults` on a cluster of its own, judged by the verifying job.

Where one fails, the data of that cluster is kept.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pipeline.console import EXIT_FAILED, errors_as_exit_code, exit_on_sigterm, say_with_time
from pipeline.errors import PipelineError
from pipeline.options import RUN_FOLDER
from pipeline.report.command import write_report
from pipeline.run_files import LOG
from pipeline.summary import fault_gap_figure, print_checks
from pipeline.trials.faults import SCENARIOS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pipeline.spark.connector import Connector
    from pipeline.trials.trial import Trial

# The load takes this long without its faults, however many records it has: the scenarios find their place in it.
_LOAD_S = 40
_PARTITIONS = 6
_PRODUCERS = 2
_KEYS = 1000
_RECORD_SIZE_BYTES = 1024
_SEED = 1


@click.command("fault-test")
@click.argument("names", nargs=-1, type=click.Choice(list(SCENARIOS)), metavar="[SCENARIO]...")
@click.option("--records", default=100_000, show_default=True, type=click.IntRange(min=_KEYS))
@click.option("--base-dir", default=".varve/fault-test", show_default=True, type=click.Path(path_type=Path))
@click.option("--out", type=RUN_FOLDER, help="The runs' folder.  [default: runs/faults-TIME]")
def fault_test_command(names: tuple[str, ...], records: int, base_dir: Path, out: Path | None) -> None:
    """Load a three-node cluster, break it in the middle, verify every record: for each SCENARIO, or for all.

    Scenarios: kill-each, kill-two, freeze-leader, wipe-node, restart-all.
    """
    folder = out or Path("runs") / time.strftime("faults-%Y%m%d-%H%M%S")
    say = say_with_time()
    exit_on_sigterm()
    log = folder / LOG
    outcomes: dict[str, Trial | PipelineError] = {}
    with errors_as_exit_code(log):
        from pipeline.spark.connector import find_connector
        from pipeline.spark.session import spark_session
        from pipeline.trials.trial import Trial

        # First of all: without the connector there is no verdict.
        connector = find_connector()
        say(f"reading will be done by Spark's official connector ({connector.source})")
        with spark_session(log, _PRODUCERS, records=records, connector=connector) as spark:
            for name in names or SCENARIOS:
                say(f"== {name}")
                try:
                    outcomes[name] = _try(
                        spark, name, records, base_dir / name, folder / name, say, connector
                    )
                except PipelineError as error:
                    outcomes[name] = error
        _print_outcomes(Console(), folder, outcomes)
        if any(isinstance(outcome, Trial) for outcome in outcomes.values()):
            click.echo(f"The same as a page, with plots: {write_report(folder)}")
    if not all(not isinstance(outcome, PipelineError) and outcome.passed for outcome in outcomes.values()):
        sys.exit(EXIT_FAILED)


def _try(
    spark: SparkSession,
    name: str,
    records: int,
    base_dir: Path,
    run: Path,
    say: Callable[[str], None],
    connector: Connector,
) -> Trial:
    """One scenario on a fresh cluster. Raises PipelineError."""
    from pipeline.load.job import LoadOptions
    from pipeline.trials.faults import Injection
    from pipeline.trials.local_cluster import local_cluster
    from pipeline.trials.trial import run_trial
    from pipeline.workloads.spec import RunSpec

    rate = records / _LOAD_S
    with local_cluster(base_dir, say, run) as cluster:
        now_ms = int(time.time() * 1000)
        spec = RunSpec(name, records, _SEED, _RECORD_SIZE_BYTES, _KEYS, _PRODUCERS, rate, now_ms)
        injection = Injection(SCENARIOS[name], cluster, spec.topic, records, say)
        options = LoadOptions(cluster.bootstrap_server, run, partitions=_PARTITIONS)
        try:
            trial = run_trial(spark, spec, options, injection, say, connector)
        except PipelineError:
            cluster.keeps_data = True
            raise
        cluster.keeps_data = not trial.passed
    return trial


def _print_outcomes(console: Console, folder: Path, outcomes: dict[str, Trial | PipelineError]) -> None:
    table = Table(title=f"Fault test ({folder})", title_justify="left")
    table.add_column("scenario", no_wrap=True)
    for column in ("records", "acknowledged", "longest gap"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("checks passed")
    for name, outcome in outcomes.items():
        if isinstance(outcome, PipelineError):
            table.add_row(name, "", "", "", f"[bold red]not done:[/] {escape(str(outcome))}")
            continue
        if not outcome.passed:
            print_checks(console, f"{name}: {folder / name}", outcome.verified["checks"])
        assert outcome.fault is not None, "every scenario injects one"
        figures = (f"{outcome.loaded[figure]:,}" for figure in ("records", "acknowledged"))
        table.add_row(name, *figures, fault_gap_figure(outcome.fault), outcome.checks_passed)
    console.print(table)
