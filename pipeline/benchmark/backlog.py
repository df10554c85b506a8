"""Catching up: a backlog is read while new records come in. What readers get, and what it does to the producers."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pyspark.sql import SparkSession

from pipeline.cluster import Cluster
from pipeline.load.bar import load_bar
from pipeline.load.job import LoadOptions, load
from pipeline.spark.connector import Connector
from pipeline.summary import update_summary
from pipeline.verify.reading import Ranges, read
from pipeline.workloads.spec import RunSpec


def load_over_backlog(
    spark: SparkSession,
    spec: RunSpec,
    options: LoadOptions,
    backlog_bytes: int,
    connector: Connector | None,
    say: Callable[[str], None],
) -> dict[str, Any]:
    """Fill the topics with a backlog (a run of its own, beside this one), then load them again while it is read.

    Gives the "load" section of that load. Raises PipelineError.
    """
    records = max(backlog_bytes // spec.record_size_bytes, spec.producers)
    # Before the other run, so that its records are told apart.
    fill = dataclasses.replace(
        spec, records=records, rate_per_s=None, start_timestamp_ms=spec.start_timestamp_ms - 1
    )
    beside = options.run.with_name(f"{options.run.name}-backlog")
    say(f"filling: {records:,} records, as fast as it goes")
    with load_bar(records) as bar:
        filled = load(spark, fill, options.for_run(beside), bar)
    if filled["interrupted"]:
        raise KeyboardInterrupt
    cluster = Cluster(options.bootstrap_server)
    ranges = {topic: cluster.offsets(topic) for topic in spec.topic_names}
    say("reading the backlog while new records come in")
    with ThreadPoolExecutor(1) as reader, load_bar(spec.records) as bar:
        reading = reader.submit(_read, spark, options.bootstrap_server, ranges, connector)
        loaded = load(spark, spec, options, bar)
        seconds = reading.result()
    megabytes = filled["megabytes_per_s"] * filled["duration_s"]
    section = {
        "records": filled["acknowledged"],
        "megabytes": megabytes,
        "seconds": seconds,
        "megabytes_per_s": megabytes / seconds,
        "records_per_s": filled["acknowledged"] / seconds,
    }
    update_summary(options.run, "backlog", section)
    say(
        f"backlog: {section['records']:,} records read in {seconds:.1f} s, {section['records_per_s']:,.0f} records/s,"
        f" {section['megabytes_per_s']:.1f} MB/s"
    )
    return loaded


def _read(spark: SparkSession, bootstrap_server: str, ranges: Ranges, connector: Connector | None) -> float:
    """How long it takes to read every column of every record, in seconds."""
    frame = read(spark, bootstrap_server, ranges, "read_uncommitted", connector)
    begun_s = time.monotonic()
    frame.write.format("noop").mode("overwrite").save()
    return time.monotonic() - begun_s
