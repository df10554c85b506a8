"""The verifying job: read everything back with Spark, and judge it against the run's acknowledgements."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from pipeline.cluster import Cluster
from pipeline.errors import PipelineError
from pipeline.run_files import CONFIG, deliveries_uri, is_loaded
from pipeline.spark.connector import Connector
from pipeline.summary import update_summary
from pipeline.verify.checks import Circumstances, found_uncommitted, judge, run_checks
from pipeline.verify.compaction import debt
from pipeline.verify.reading import Ranges, read
from pipeline.verify.results import CheckResult, passed, write_checks
from pipeline.workloads.spec import RunSpec


@dataclass(frozen=True, slots=True)
class VerifyOptions:
    run: Path
    bootstrap_server: str
    compare_replicas: Callable[[str], CheckResult] | None = None
    """A check of a topic's replicas. Spark reads from leaders alone, so it has to be somebody else's."""


def verify(spark: SparkSession, options: VerifyOptions, connector: Connector | None) -> dict[str, Any]:
    """Run the job; gives the "verify" section of summary.json, "passed" in it. Raises PipelineError.

    `connector`: what the session was started with, to read through; None: read in Python.
    """
    run = options.run
    check_is_loaded(run)
    spec = RunSpec.of_run(run)
    config = json.loads((run / CONFIG).read_text())
    cluster = Cluster(options.bootstrap_server)
    ranges = _ranges(cluster, config, spec)
    given = Circumstances(
        partitions=len(config["start_offsets"][spec.topic_names[0]]),
        is_compacted=cluster.is_compacted(spec.topic_names[0]),
    )

    def read_as(isolation_level: str) -> DataFrame:
        return judge(read(spark, options.bootstrap_server, ranges, isolation_level, connector), spec)

    judged = read_as("read_committed").cache()
    deliveries = spark.read.parquet(deliveries_uri(run)).cache()
    try:
        records_read = judged.count()
        results = run_checks(judged, deliveries, spec, given)
        compaction = None
        if given.is_compacted:
            acknowledged = deliveries.where("error is null").count()
            compaction = debt(judged.where("sequence is not null"), acknowledged)
        elif spec.transaction_records:
            results.append(found_uncommitted(read_as("read_uncommitted"), deliveries))
    finally:
        judged.unpersist()
        deliveries.unpersist()
    if options.compare_replicas is not None:
        results += [options.compare_replicas(topic) for topic in spec.topic_names]
    write_checks(run, results)
    by = "Python (confluent-kafka)"
    if connector is not None:
        by = f"Spark's official connector ({connector.source})"
    section = {
        "passed": passed(results),
        "read_by": by,
        "records_read": records_read,
        "ranges": {
            topic: {str(partition): list(both) for partition, both in partitions.items()}
            for topic, partitions in ranges.items()
        },
        "compaction": compaction,
        "checks": [result.to_json() for result in results],
    }
    update_summary(run, "verify", section)
    return section


def check_is_loaded(run: Path) -> None:
    """Raises PipelineError unless a load has finished in the folder."""
    if not is_loaded(run):
        raise PipelineError(f"{run} is not the folder of a finished load")


def _ranges(cluster: Cluster, config: dict[str, Any], spec: RunSpec) -> Ranges:
    """From where the run began to where it ended, per topic and partition.

    Where the log starts later by now, from there: what is gone shows as missing.
    """
    starts, ends = config["start_offsets"], config["end_offsets"]
    ranges: Ranges = {}
    for topic in spec.topic_names:
        ranges[topic] = {}
        for partition, (first, end) in cluster.offsets(topic).items():
            start = max(first, starts[topic].get(str(partition), 0))
            # A partition that the run did not know is younger than it.
            run_end = end if ends is None else ends[topic].get(str(partition), 0)
            # A log that ends before the run began has lost it all: an empty range, and everything missing.
            ranges[topic][partition] = (start, max(start, min(end, run_end)))
    return ranges
