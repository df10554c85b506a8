"""A trial: load a cluster, do something to it meanwhile, and judge what it kept."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

from pyspark.sql import SparkSession

from pipeline.load.bar import load_bar
from pipeline.load.job import LoadOptions, Watcher, load
from pipeline.load.over_time import longest_gap
from pipeline.load.progress import Progress
from pipeline.run_files import deliveries_uri
from pipeline.spark.connector import Connector
from pipeline.summary import update_summary
from pipeline.trials.faults import Injection
from pipeline.trials.local_cluster import LocalCluster
from pipeline.verify.job import VerifyOptions, verify
from pipeline.verify.results import CheckResult
from pipeline.workloads.spec import RunSpec

_SAMPLE_SIZE = 5


@dataclass(frozen=True, slots=True)
class Trial:
    """The sections of the run's summary.json."""

    loaded: dict[str, Any]
    verified: dict[str, Any]
    fault: dict[str, Any] | None
    """`events` of the injection, and `gap` (see `longest_gap`) from the first of them on; None without one."""

    @property
    def passed(self) -> bool:
        """Every record was acknowledged, however long that took, and no check failed."""
        is_complete: bool = self.loaded["acknowledged"] == self.loaded["records"]
        is_kept: bool = self.verified["passed"]
        return is_complete and is_kept

    @property
    def checks_passed(self) -> str:
        count = sum(check["status"] == "PASS" for check in self.verified["checks"])
        style = "bold green" if self.passed else "bold red"
        return f"[{style}]{count} of {len(self.verified['checks'])}[/]"


class _Both:
    """A watcher of which the injection hears, too."""

    def __init__(self, watcher: Watcher, injection: Injection) -> None:
        self._watcher = watcher
        self._injection = injection

    def progressed(self, progress: Progress) -> None:
        self._watcher.progressed(progress)
        self._injection.report(progress)

    def begins(self, phase: str) -> None:
        self._watcher.begins(phase)


def run_trial(
    spark: SparkSession,
    spec: RunSpec,
    options: LoadOptions,
    injection: Injection | None,
    say: Callable[[str], None],
    connector: Connector | None,
) -> Trial:
    """The jobs `load` and `verify` one after the other. Raises PipelineError."""
    say(f"loading {spec.records:,} records at {spec.rate_per_s or 0:,.0f}/s into {spec.topic}")
    with injection or nullcontext(), load_bar(spec.records) as bar:
        loaded = load(spark, spec, options, bar if injection is None else _Both(bar, injection))
    if loaded["interrupted"]:
        raise KeyboardInterrupt
    fault = None
    if injection is not None:
        acknowledged = spark.read.parquet(deliveries_uri(options.run)).where("error is null")
        gap = longest_gap(acknowledged, since_us=injection.events[0]["at_us"])
        fault = {"events": injection.events, "gap": gap}
        update_summary(options.run, "fault", fault)
    say("verifying: reading everything back")
    compare = None if injection is None else partial(replicas_are_alike, injection.cluster)
    verified = verify(spark, VerifyOptions(options.run, options.bootstrap_server, compare), connector)
    say("verified")
    return Trial(loaded, verified, fault)


def replicas_are_alike(cluster: LocalCluster, topic: str) -> CheckResult:
    """What was read came from leaders; the others have to hold the same."""
    partitions = cluster.compare_replicas(topic)
    others = [each for each in partitions if each["error"] is not None or not _are_alike(each["replicas"])]
    status = "PASS" if partitions and not others else "FAIL"
    return CheckResult(
        "partitions whose replicas are not alike", 0, len(others), status, others[:_SAMPLE_SIZE]
    )


def _are_alike(replicas: list[dict[str, Any]]) -> bool:
    return not any(each["not_compared"] or each["first_offset"] is not None for each in replicas)
