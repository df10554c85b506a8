"""The command `tune`."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from pipeline.console import errors_as_exit_code, say_with_time
from pipeline.lab.command import print_findings
from pipeline.options import BOOTSTRAP_SERVER, RUN_FOLDER
from pipeline.run_files import LOG


@click.command("tune")
@BOOTSTRAP_SERVER
@click.option("--topic", help="Where it sends to.  [default: a new topic]")
@click.option(
    "--partitions", default=6, show_default=True, type=click.IntRange(min=1), help="Of a new topic."
)
@click.option(
    "--value-bytes", type=click.IntRange(min=1), help="Of each value.  [default: JSON orders of some 300]"
)
@click.option(
    "--runs",
    default=3,
    show_default=True,
    type=click.IntRange(min=1),
    help="Of each choice; the median counts.",
)
@click.option(
    "--seconds", default=3.0, show_default=True, type=click.FloatRange(min=0.1), help="Of each run."
)
@click.option("--out", type=RUN_FOLDER, help="The folder of the findings.  [default: runs/tune-TIME]")
def tune_command(
    bootstrap_server: str,
    topic: str | None,
    partitions: int,
    value_bytes: int | None,
    runs: int,
    seconds: float,
    out: Path | None,
) -> None:
    """Find the settings with which one producer sends most to a cluster, and say what it then waits for."""
    folder = out or Path("runs") / time.strftime("tune-%Y%m%d-%H%M%S")
    say = say_with_time()
    with errors_as_exit_code(folder / LOG):
        from pipeline.lab.bench import Bench
        from pipeline.lab.observed import Observed, Traffic, filled, observe, orders
        from pipeline.lab.tune import changed, findings, play
        from pipeline.load.job import make_run_folder
        from pipeline.report.command import write_report
        from pipeline.report.findings import write_findings

        make_run_folder(folder)
        bench = Bench(bootstrap_server, folder, say)
        where = topic or bench.topic("tune", partitions=partitions)
        values = orders() if value_bytes is None else filled(value_bytes)

        def measure(settings: Mapping[str, Any]) -> list[Observed]:
            safe = {"acks": "all", "enable.idempotence": True, **settings}
            return [observe(bootstrap_server, safe, Traffic(where, values, seconds)) for _ in range(runs)]

        measure({})  # the first run pays for what is done once
        book = play(measure, say)
        found = findings(book)
        write_findings(folder, found)
        print_findings(Console(), found)
        click.echo("\n".join(["Settings to take over:", *(f"  {n}={v}" for n, v in changed(book).items())]))
        click.echo(f"The same as a page, with plots: {write_report(folder)}")
