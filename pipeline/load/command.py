"""`python -m pipeline load`."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click
from rich.console import Console

from pipeline.console import EXIT_FAILED, errors_as_exit_code
from pipeline.load.bar import load_bar
from pipeline.options import (
    BOOTSTRAP_SERVER,
    DELIVERIES,
    PRODUCER_CONFIG,
    RATE,
    RUN_FOLDER,
    sizes,
    spark_options,
)
from pipeline.run_files import LOG

_DEFAULT_RATE_PER_S = 5000.0


@click.command("load")
@BOOTSTRAP_SERVER
@click.option("--topic", required=True, help="Created if it does not exist.")
@click.option("--records", default=100_000, show_default=True, type=click.IntRange(min=1))
@click.option("--rate", type=RATE, help="Records per second over all producers.  [default: 5000]")
@click.option("--max", "as_fast_as_possible", is_flag=True, help="As fast as the cluster takes them.")
@sizes
@click.option("--linger-ms", default=5.0, show_default=True, help="How long a batch waits to fill.")
@click.option("--message-timeout-ms", default=120_000, show_default=True, help="When a record is given up.")
@PRODUCER_CONFIG
@click.option("--warm-up", default=2, show_default=True, help="Seconds left out of the latency figures.")
@click.option("--partitions", default=3, show_default=True, help="Of a topic that is created.")
@click.option("--replication-factor", default=3, show_default=True, help="Of a topic that is created.")
@click.option("--out", required=True, type=RUN_FOLDER, help="The run's folder, e.g. runs/001.")
@DELIVERIES
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
    producer_config: dict[str, str],
    warm_up: int,
    partitions: int,
    replication_factor: int,
    out: Path,
    deliveries: str | None,
    master: str | None,
    conf: dict[str, str],
) -> None:
    """Send records that follow from --seed alone, and note each acknowledgement."""
    if rate is not None and as_fast_as_possible:
        raise click.UsageError("--rate and --max exclude each other")
    with errors_as_exit_code(out / LOG):
        from pipeline.cluster import Cluster
        from pipeline.load.job import LoadOptions, check_producer_config, load, make_run_folder
        from pipeline.spark.session import SparkOptions, spark_session
        from pipeline.summary import print_load
        from pipeline.workloads.spec import RunSpec

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
            producer_config=producer_config,
            deliveries=deliveries,
        )
        # Before Spark, which takes ten seconds to start.
        check_producer_config(options)
        make_run_folder(out)
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
