"""The demonstration: a cluster, a load, a leader killed in the middle, and the proof that nothing was lost.

With `--bootstrap-server` it loads and verifies a cluster that is there already, and kills nothing.
"""

from __future__ import annotations

import sys
import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.table import Table

from pipeline.console import EXIT_FAILED, errors_as_exit_code, exit_on_sigterm, say_with_time, warn
from pipeline.options import RATE, RUN_FOLDER, sizes
from pipeline.report.command import write_report
from pipeline.run_files import LOG
from pipeline.summary import fault_gap_figure, load_rows, print_checks

if TYPE_CHECKING:
    from pipeline.trials.local_cluster import LocalCluster
    from pipeline.trials.trial import Trial


@click.command("demo")
@click.option("--bootstrap-server", metavar="HOST:PORT,...", help="Load and verify this cluster; no kill.")
@click.option("--records", default=100_000, show_default=True, type=click.IntRange(min=1))
@click.option("--rate", type=RATE, default=5000.0, show_default=True, help="Records per second.")
@sizes
@click.option("--base-dir", default=".varve/demo", show_default=True, type=click.Path(path_type=Path))
@click.option("--out", type=RUN_FOLDER, help="The run's folder.  [default: runs/demo-TIME]")
def demo_command(
    bootstrap_server: str | None,
    records: int,
    rate: float,
    record_size: int,
    keys: int,
    producers: int,
    seed: int,
    compression: str,
    base_dir: Path,
    out: Path | None,
) -> None:
    """Start three brokers, load them, kill a leader in the middle, verify every record."""
    run = out or Path("runs") / time.strftime("demo-%Y%m%d-%H%M%S")
    say = say_with_time()
    exit_on_sigterm()
    with errors_as_exit_code(run / LOG):
        from pipeline.load.job import LoadOptions
        from pipeline.spark.connector import choose_connector
        from pipeline.spark.java_runtime import find_java
        from pipeline.spark.session import spark_session
        from pipeline.trials.faults import Injection, kill_leader
        from pipeline.trials.local_cluster import local_cluster
        from pipeline.trials.trial import run_trial
        from pipeline.workloads.spec import RunSpec

        # First of all: to learn of a missing Java after a minute would be unkind.
        say(f"Spark will run on {find_java().description}")
        connector = choose_connector("auto", None, warn)
        now_ms = int(time.time() * 1000)
        try:
            spec = RunSpec(f"demo-{now_ms}", records, seed, record_size, keys, producers, rate, now_ms)
        except ValueError as error:
            raise click.UsageError(str(error)) from error
        own: AbstractContextManager[LocalCluster | None] = (
            local_cluster(base_dir, say, run) if bootstrap_server is None else nullcontext()
        )
        with own as cluster:
            bootstrap = cluster.bootstrap_server if cluster else bootstrap_server
            assert bootstrap is not None, "given, or that of the cluster just started"
            injection = Injection(kill_leader, cluster, spec.topic, records, say) if cluster else None
            say("starting Spark")
            with spark_session(run / LOG, producers, records=records, connector=connector) as spark:
                options = LoadOptions(bootstrap, run, compression)
                trial = run_trial(spark, spec, options, injection, say, connector)
            if cluster:
                cluster.keeps_data = not trial.passed
        _print_result(Console(), run, trial)
        click.echo(f"The same as a page, with plots: {write_report(run)}")
    if not trial.passed:
        sys.exit(EXIT_FAILED)


def _print_result(console: Console, run: Path, trial: Trial) -> None:
    title = f"{trial.verified['records_read']:,} records read by {trial.verified['read_by']}"
    print_checks(console, title, trial.verified["checks"])
    table = Table(title=f"Demonstration ({run})", title_justify="left", show_header=False)
    for name, figure in load_rows(trial.loaded):
        table.add_row(name, figure)
    if trial.fault is not None:
        table.add_row("fail-over gap", f"{fault_gap_figure(trial.fault)}, {trial.fault['events'][0]['what']}")
    table.add_row("checks passed", trial.checks_passed)
    console.print(table)
