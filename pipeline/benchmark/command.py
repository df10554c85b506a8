"""`python -m pipeline run FILE|NAME` and `python -m pipeline list`."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.table import Table

from pipeline.console import EXIT_FAILED, errors_as_exit_code, known_errors_as_exit_code, say_with_time, warn
from pipeline.options import BOOTSTRAP_SERVER, DELIVERIES, RUN_FOLDER, spark_options
from pipeline.run_files import LOG

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pipeline.load.job import LoadOptions
    from pipeline.spark.connector import Connector
    from pipeline.workloads.definition import Workload
    from pipeline.workloads.spec import RunSpec

_VERIFY_TASKS = 2
_COMPACTION_POLL_S = 10.0


@click.command("list")
def list_command() -> None:
    """The workloads that `run` knows by name."""
    with known_errors_as_exit_code():
        from pipeline.workloads.definition import ELSEWHERE, find_workload, names

        table = Table(title="Workloads", title_justify="left", show_lines=True)
        for column in ("name", "shape", "exercises"):
            table.add_column(column, no_wrap=column == "name")
        for name in names():
            workload = find_workload(name)
            table.add_row(name, workload.shape, workload.exercises)
        Console().print(table)
        for name, command in ELSEWHERE.items():
            click.echo(f"{name}: python -m pipeline {command}")


@click.command("run")
@click.argument("workload", metavar="FILE|NAME")
@BOOTSTRAP_SERVER
@click.option("--topic", help="What the topics are called.  [default: the workload's name and the time]")
@click.option(
    "--scale",
    default=1.0,
    show_default=True,
    type=click.FloatRange(min=0, min_open=True),
    help="So many times the records and keys.",
)
@click.option("--seed", default=1, show_default=True, help="Decides all records.")
@click.option("--replication-factor", default=3, show_default=True)
@click.option("--verify/--no-verify", "is_verified", default=True, help="Read everything back and judge it.")
@click.option(
    "--wait-for-compaction",
    "compaction_wait_s",
    metavar="SECONDS",
    default=0.0,
    type=click.FloatRange(min=0),
    help="Verify again once most of what was superseded is gone, within this time. Varve looks every 5 minutes for what"
    " to compact; `varve topic compact` does it at once.",
)
@click.option(
    "--find-limit", is_flag=True, help="Raise the rate until the cluster is saturated; nothing is verified."
)
@click.option("--out", type=RUN_FOLDER, help="The run's folder.  [default: runs/NAME-TIME]")
@DELIVERIES
@spark_options
def run_command(
    workload: str,
    bootstrap_server: str,
    topic: str | None,
    scale: float,
    seed: int,
    replication_factor: int,
    is_verified: bool,
    compaction_wait_s: float,
    find_limit: bool,
    out: Path | None,
    deliveries: str | None,
    master: str | None,
    conf: dict[str, str],
) -> None:
    """Load a cluster with a workload (`list` shows those that are known), then verify what it kept."""
    is_good = False
    stamp = time.strftime("%Y%m%d-%H%M%S")
    run = out or Path("runs") / f"{Path(workload).stem}-{stamp}"
    with errors_as_exit_code(run / LOG):
        from pipeline.cluster import Cluster
        from pipeline.load.job import LoadOptions, make_run_folder
        from pipeline.spark.connector import choose_connector
        from pipeline.spark.session import SparkOptions, spark_session
        from pipeline.workloads.definition import find_workload

        wanted = find_workload(workload)
        prefix = topic or f"{wanted.name}-{stamp}"
        spec = _spec(wanted, prefix, seed, scale)
        make_run_folder(run)
        # Before Spark, which takes ten seconds to start.
        Cluster(bootstrap_server).brokers()
        needs_reading = is_verified and not find_limit
        connector = choose_connector("auto", None, warn) if needs_reading else None
        options = LoadOptions(
            bootstrap_server,
            run,
            wanted.compression,
            warm_up_s=wanted.warm_up_s,
            partitions=wanted.partitions,
            replication_factor=replication_factor,
            topic_config=wanted.topic_config,
            deliveries=deliveries,
        )
        say = say_with_time()
        say(f"{wanted.name}: {wanted.shape}")
        # What reads meanwhile needs slots as well.
        readers = _VERIFY_TASKS if wanted.backlog_bytes or wanted.is_purged else 0
        tasks = max(spec.tasks + readers, _VERIFY_TASKS)
        where = SparkOptions(master, conf)
        with spark_session(
            run / LOG, tasks, records=spec.records, connector=connector, options=where
        ) as spark:
            if find_limit:
                from pipeline.benchmark.limit import find_and_report

                find_and_report(spark, wanted, spec, options, say)
                is_good = True
            else:
                is_good = _run(spark, wanted, spec, options, connector, say, scale)
                if is_verified and not wanted.is_purged:
                    is_good &= _verify(spark, options, connector, compaction_wait_s, say)
    if not is_good:
        sys.exit(EXIT_FAILED)


def _spec(workload: Workload, topic: str, seed: int, scale: float) -> RunSpec:
    try:
        return workload.spec(topic, seed, int(time.time() * 1000), scale=scale)
    except ValueError as error:
        raise click.UsageError(f"at scale {scale:g}: {error}") from error


def _run(
    spark: SparkSession,
    workload: Workload,
    spec: RunSpec,
    options: LoadOptions,
    connector: Connector | None,
    say: Callable[[str], None],
    scale: float,
) -> bool:
    """Whether all records were acknowledged, or aborted on purpose, and a stream that purges them saw them all."""
    from pipeline.benchmark.backlog import load_over_backlog
    from pipeline.benchmark.purge import load_and_purge
    from pipeline.load.bar import load_bar
    from pipeline.load.job import load
    from pipeline.summary import print_checks, print_load

    is_good = True
    if workload.is_purged:
        loaded, judged = load_and_purge(spark, spec, options, say)
        print_checks(
            Console(), f"{judged['records_read']:,} records read by {judged['read_by']}", judged["checks"]
        )
        is_good = judged["passed"]
    elif workload.backlog_bytes:
        backlog_bytes = round(workload.backlog_bytes * scale)
        loaded = load_over_backlog(spark, spec, options, backlog_bytes, connector, say)
    else:
        with load_bar(spec.records) as bar:
            loaded = load(spark, spec, options, bar)
    print_load(Console(), f"Load of {spec.topic} ({options.run})", loaded)
    if loaded["interrupted"]:
        raise KeyboardInterrupt
    return is_good and loaded["acknowledged"] + loaded["aborted"] == spec.records


def _verify(
    spark: SparkSession,
    options: LoadOptions,
    connector: Connector | None,
    compaction_wait_s: float,
    say: Callable[[str], None],
) -> bool:
    """Whether no check failed: at once, and, where that is waited for, after compaction."""
    from pipeline.summary import compaction_line, print_checks
    from pipeline.verify.job import VerifyOptions, verify

    console = Console()
    wanted = VerifyOptions(options.run, options.bootstrap_server)
    say("verifying: reading everything back")
    verified = verify(spark, wanted, connector)
    deadline_s = time.monotonic() + compaction_wait_s
    while verified["passed"] and _is_to_be_compacted(verified) and time.monotonic() < deadline_s:
        say(f"{compaction_line(verified['compaction'])}; waiting for compaction")
        time.sleep(min(_COMPACTION_POLL_S, max(deadline_s - time.monotonic(), 0)))
        verified = verify(spark, wanted, connector)
    title = f"{verified['records_read']:,} records read by {verified['read_by']}"
    print_checks(console, title, verified["checks"])
    if verified["compaction"]:
        console.print(compaction_line(verified["compaction"]))
    return bool(verified["passed"])


def _is_to_be_compacted(verified: dict[str, Any]) -> bool:
    """Whether more than half of what can go is still there."""
    compaction = verified["compaction"]
    if compaction is None:
        return False
    gone = compaction["acknowledged"] - compaction["records"]
    return bool(compaction["superseded"] > gone)
