"""`python -m pipeline verify`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from pipeline.console import EXIT_FAILED, errors_as_exit_code, warn
from pipeline.options import BOOTSTRAP_SERVER, RUN_FOLDER, spark_options
from pipeline.run_files import LOG


@click.command("verify")
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
        from pipeline.spark.connector import choose_connector
        from pipeline.spark.session import SparkOptions, spark_session
        from pipeline.summary import compaction_line, print_checks
        from pipeline.verify.job import VerifyOptions, check_is_loaded, verify
        from pipeline.workloads.spec import RunSpec

        check_is_loaded(run)
        chosen = choose_connector(connector, connector_jars, warn)
        records = RunSpec.of_run(run).records
        where = SparkOptions(master, conf)
        with spark_session(run / LOG, tasks, records=records, connector=chosen, options=where) as spark:
            figures = verify(spark, VerifyOptions(run, bootstrap_server), chosen)
        print_checks(
            console, f"{figures['records_read']:,} records read by {figures['read_by']}", figures["checks"]
        )
        if figures["compaction"]:
            console.print(compaction_line(figures["compaction"]))
    if not figures["passed"]:
        sys.exit(EXIT_FAILED)
