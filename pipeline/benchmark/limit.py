"""The highest rate that a cluster takes: raised until it is saturated, then narrowed down."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from pipeline.load.bar import load_bar
from pipeline.load.job import LoadOptions, load
from pipeline.report.findings import TableOf, plot_of, write_findings
from pipeline.report.sweep import Axis, Series, Sweep
from pipeline.summary import warm_latency_ms
from pipeline.workloads.definition import Workload
from pipeline.workloads.spec import RunSpec

#: How long each rate is tried.
_TRIAL_S = 10
_FIRST_RATE_PER_S = 1000.0
_STEP = 2.0
#: Below this there is no use in trying.
_LEAST_RATE_PER_S = 50.0
#: The limit is known when the rates below and above it are this close.
_CLOSE_ENOUGH = 1.15
#: Saturated: less than this share of the rate is acknowledged, or p99 is beyond a second, as records wait for one
#: another.
_ACHIEVED = 0.95
_P99_BOUND_MS = 1000.0


@dataclass(frozen=True, slots=True)
class Point:
    """One rate that was tried."""

    asked_per_s: float
    achieved_per_s: float
    p50_ms: float
    p99_ms: float

    @property
    def is_saturated(self) -> bool:
        return self.achieved_per_s < _ACHIEVED * self.asked_per_s or self.p99_ms > _P99_BOUND_MS


def search(first_per_s: float, measure: Callable[[float], Point]) -> list[Point]:
    """All rates tried, in their order: doubled up to the first that saturates, or halved down to the first that does
    not, then narrowed down between the two."""
    points = [measure(first_per_s)]
    step = 1 / _STEP if points[0].is_saturated else _STEP
    while points[-1].is_saturated == points[0].is_saturated:
        if points[-1].asked_per_s * step < _LEAST_RATE_PER_S:
            return points
        points.append(measure(points[-1].asked_per_s * step))
    below, above = sorted(point.asked_per_s for point in points[-2:])
    while above / below > _CLOSE_ENOUGH:
        point = measure((above * below) ** 0.5)
        points.append(point)
        above, below = (point.asked_per_s, below) if point.is_saturated else (above, point.asked_per_s)
    return points


def limit(points: list[Point]) -> Point | None:
    """The highest rate that did not saturate; None where all did."""
    held = [point for point in points if not point.is_saturated]
    return max(held, key=lambda point: point.asked_per_s) if held else None


def find_and_report(
    spark: SparkSession,
    workload: Workload,
    spec: RunSpec,
    options: LoadOptions,
    say: Callable[[str], None],
) -> None:
    """Each rate is a load of its own, on topics of its own; a table, and sweep.json for the report. Raises
    PipelineError."""

    def measure(rate_per_s: float) -> Point:
        name = f"{rate_per_s:.0f}"
        records = max(round(rate_per_s * _TRIAL_S), spec.producers)
        trial = dataclasses.replace(
            spec,
            topic=f"{spec.topic}-{name}",
            records=records,
            rate_per_s=rate_per_s,
            tombstone_tail=0,
            start_timestamp_ms=int(time.time() * 1000),
        )
        with load_bar(records) as bar:
            figures = load(spark, trial, options.for_run(options.run / name), bar)
        if figures["interrupted"]:
            raise KeyboardInterrupt
        point = _point(rate_per_s, figures)
        said = "saturated" if point.is_saturated else "held"
        say(f"{rate_per_s:,.0f}/s: {point.achieved_per_s:,.0f}/s, p99 {point.p99_ms:,.1f} ms: {said}")
        return point

    points = search(spec.rate_per_s or _FIRST_RATE_PER_S, measure)
    found = limit(points)
    text = summary(workload.name, points)
    write_findings(options.run, findings(workload.name, text, points))
    table = Table(title=f"Rates tried ({options.run})", title_justify="left")
    for column in ("asked", "acknowledged", "p50 ms", "p99 ms"):
        table.add_column(column, justify="right")
    table.add_column("")
    for point in sorted(points, key=lambda point: point.asked_per_s):
        mark = "saturated" if point.is_saturated else "limit" if point == found else ""
        figures = (point.asked_per_s, point.achieved_per_s, point.p50_ms, point.p99_ms)
        table.add_row(
            *(f"{figure:,.0f}" for figure in figures[:2]), *(f"{f:,.1f}" for f in figures[2:]), mark
        )
    Console().print(table)
    Console().print(text)


def _point(rate_per_s: float, figures: dict[str, Any]) -> Point:
    if not figures["acknowledged"]:
        return Point(rate_per_s, 0.0, float("inf"), float("inf"))
    latency = warm_latency_ms(figures)
    return Point(rate_per_s, figures["records_per_s"], latency["p50"], latency["p99"])


def summary(name: str, points: list[Point]) -> str:
    """What was found, in a sentence or two."""
    found = limit(points)
    least = min((point for point in points if point.is_saturated), key=lambda point: point.asked_per_s)
    if found is None:
        return f"{name}: even {least.asked_per_s:,.0f} records/s saturate the cluster."
    return (
        f"{name}: the cluster held {found.asked_per_s:,.0f} records/s with p99 at {found.p99_ms:,.1f} ms, and was"
        f" saturated at {least.asked_per_s:,.0f}, where it acknowledged {least.achieved_per_s:,.0f} per second."
    )


def findings(name: str, text: str, points: list[Point]) -> Sweep:
    """For the report."""
    known = sorted((point for point in points if point.achieved_per_s), key=lambda point: point.asked_per_s)
    table = TableOf(
        "Rates tried",
        [("asked", "1/s"), ("acknowledged", "1/s"), ("p50", "ms"), ("p99", "ms"), "saturated"],
    )
    for point in known:
        table.add(point.asked_per_s, point.achieved_per_s, point.p50_ms, point.p99_ms, point.is_saturated)
    x = Axis("rate asked for", "records/s", "log")
    acknowledged = plot_of(
        "Acknowledged by rate",
        x,
        Axis("acknowledged", "records/s", "log"),
        Series("measured", [(point.asked_per_s, point.achieved_per_s) for point in known], False),
        Series("all of it", [(point.asked_per_s, point.asked_per_s) for point in known], True),
    )
    latency = plot_of(
        "Latency by rate",
        x,
        Axis("latency", "ms", "log"),
        Series("p50", [(point.asked_per_s, point.p50_ms) for point in known], False),
        Series("p99", [(point.asked_per_s, point.p99_ms) for point in known], False),
    )
    return Sweep(f"How much of {name} the cluster takes", text, [table.table()], [acknowledged, latency])
