"""The verifying job: read everything back with Spark, and judge it against the run's acknowledgements."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pyspark.sql import DataFrame, SparkSession

from pipeline.checks import CheckResult, judge, passed, run_checks
from pipeline.cluster import Cluster
from pipeline.connector import attach_connector
from pipeline.errors import ConnectorUnavailable, PipelineError
from pipeline.load import DELIVERIES
from pipeline.reading import Ranges, read_by_connector, read_by_python
from pipeline.records import RunSpec
from pipeline.summary import update_summary

Connector = Literal["auto", "jvm", "python"]
CHECKS = "verify.parquet"
_CHECKS_SCHEMA_SQL = "name string, expected bigint, actual bigint, status string, sample string"


@dataclass(frozen=True, slots=True)
class VerifyOptions:
    run: Path
    bootstrap_server: str
    connector: Connector = "auto"
    """jvm: Spark's official connector, or an error. auto: the same, or else Python, with a warning."""
    connector_jars: Path | None = None
    """A folder with the connector's jars, where no package registry can be reached."""


def verify(spark: SparkSession, options: VerifyOptions, warn: Callable[[str], None]) -> dict[str, Any]:
    """Run the job; gives the "verify" section of summary.json, "passed" in it. Raises PipelineError."""
    run = options.run
    check_is_loaded(run)
    spec = RunSpec.of_run(run)
    ranges = _ranges(options, spec)
    read, how = _reader(spark, options, spec, ranges, warn)
    judged = judge(read, spec).cache()
    deliveries = spark.read.parquet(str(run / DELIVERIES)).cache()
    try:
        records_read = judged.count()
        results = run_checks(judged, deliveries, spec)
    finally:
        judged.unpersist()
        deliveries.unpersist()
    _write_checks(spark, run, results)
    section = {
        "passed": passed(results),
        "read_by": how,
        "records_read": records_read,
        "ranges": {str(partition): list(both) for partition, both in ranges.items()},
        "checks": [result.to_json() for result in results],
    }
    update_summary(run, "verify", section)
    return section


def check_is_loaded(run: Path) -> None:
    """Raises PipelineError unless a load has finished in the folder."""
    if not (run / "config.json").exists() or not (run / DELIVERIES / "_SUCCESS").exists():
        raise PipelineError(f"{run} is not the folder of a finished load")


def _ranges(options: VerifyOptions, spec: RunSpec) -> Ranges:
    """From where the run began to the end, per partition.

    Where the log starts later by now, from there: what is gone shows as missing.
    """
    starts = json.loads((options.run / "config.json").read_text())["start_offsets"]
    offsets = Cluster(options.bootstrap_server).offsets(spec.topic)
    ranges: Ranges = {}
    for partition, (first, end) in offsets.items():
        start = max(first, starts.get(str(partition), 0))
        # A log that ends before the run began has lost it all: an empty range, and everything missing.
        ranges[partition] = (start, max(start, end))
    return ranges


def _reader(
    spark: SparkSession, options: VerifyOptions, spec: RunSpec, ranges: Ranges, warn: Callable[[str], None]
) -> tuple[DataFrame, str]:
    if options.connector != "python":
        try:
            jars = attach_connector(spark, options.connector_jars)
        except ConnectorUnavailable as error:
            if options.connector == "jvm":
                raise
            warn(f"{error}\nREADING THROUGH PYTHON INSTEAD: this run says nothing about Spark's connector.")
        else:
            read = read_by_connector(spark, options.bootstrap_server, spec.topic, ranges)
            return read, f"Spark's official connector ({jars})"
    return read_by_python(spark, options.bootstrap_server, spec.topic, ranges), "Python (confluent-kafka)"


def _write_checks(spark: SparkSession, run: Path, results: list[CheckResult]) -> None:
    rows = [(r.name, r.expected, r.actual, r.status, json.dumps(r.sample)) for r in results]
    spark.createDataFrame(rows, _CHECKS_SCHEMA_SQL).coalesce(1).write.mode("overwrite").parquet(
        str(run / CHECKS)
    )
