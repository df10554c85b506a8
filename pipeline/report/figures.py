"""From the files of a run to what is drawn and compared: series over time, percentiles, headline figures."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from hdrh.histogram import HdrHistogram

from pipeline.load.latency import merge
from pipeline.report.run import Run

_MOST_BINS = 240
_BIN_S = (1, 2, 5, 10, 30, 60, 300, 600, 1800, 3600, 86400)
_CURVE_POINTS_PER_NINE = 24
#: Those of the table; as many as the number of records can tell apart are shown.
_TABLE_NINES = 6

Point = tuple[float, float | None]
"""Seconds since the start and a figure; None where there is none, and a line has its gap."""


@dataclass(frozen=True, slots=True)
class LatencyOverTime:
    """Milliseconds by the second in which a record was meant to be sent."""

    p50: list[Point]
    p99: list[Point]
    max: list[Point]


@dataclass(frozen=True, slots=True)
class Headline:
    """One figure of a run, and which way is better."""

    name: str
    value: float | None
    unit: str
    higher_is_better: bool | None
    """None: neither is."""


@dataclass(frozen=True, slots=True)
class Event:
    """Something that befell the cluster."""

    number: int
    at_s: float
    what: str


def seconds_of(run: Run) -> int:
    """How many seconds of the run have figures."""
    last = [second for second, _ in run.latency]
    if run.throughput is not None and len(run.throughput):
        last.append(pc.max(run.throughput["second"]).as_py())
    return max(last, default=-1) + 1


def bin_seconds(seconds: int) -> int:
    """How many seconds go into one point of a line, so that a run of days is no longer than one of minutes."""
    return next((step for step in _BIN_S if seconds / step <= _MOST_BINS), _BIN_S[-1])


def latency_over_time(run: Run, bin_s: int) -> LatencyOverTime:
    """From histograms that are merged per bin, never from averages of percentiles."""
    rows: dict[int, list[bytes]] = {}
    for second, encoded in run.latency:
        rows.setdefault(second // bin_s, []).append(encoded)
    over_time = LatencyOverTime([], [], [])
    for number in range(max(rows, default=-1) + 1):
        at_s = (number + 0.5) * bin_s
        histogram = merge(rows.get(number, []))
        known = histogram.get_percentile_to_value_dict([50.0, 99.0]) if histogram.get_total_count() else {}
        over_time.p50.append((at_s, _ms(known.get(50.0))))
        over_time.p99.append((at_s, _ms(known.get(99.0))))
        over_time.max.append((at_s, histogram.get_max_value() / 1000 if known else None))
    return over_time


def throughput_over_time(run: Run, bin_s: int) -> dict[int, list[Point]]:
    """Acknowledged records per second, by partition. Seconds without any count as 0."""
    if run.throughput is None:
        return {}
    table = run.throughput
    number = pc.cast(pc.floor(pc.divide(pc.cast(table["second"], pa.float64()), float(bin_s))), pa.int64())
    counted = (
        table.append_column("bin", number).group_by(["bin", "partition"]).aggregate([("records", "sum")])
    )
    sums = {(row["partition"], row["bin"]): row["records_sum"] for row in counted.to_pylist()}
    bins = max((number for _, number in sums), default=-1) + 1
    return {
        partition: [(n * bin_s, sums.get((partition, n), 0) / bin_s) for n in range(bins)]
        for partition in sorted({partition for partition, _ in sums})
    }


def total(by_partition: dict[int, list[Point]]) -> list[Point]:
    return [
        (points[0][0], sum(value or 0 for _, value in points))
        for points in zip(*by_partition.values(), strict=True)
    ]


def overall(run: Run) -> tuple[HdrHistogram, bool]:
    """All latencies but those of the warm-up; of a run that is shorter, all. True: the warm-up is left out."""
    warm_up_s = (run.load or run.stream or {}).get("warm_up_s", 0)
    warm = merge(encoded for second, encoded in run.latency if second >= warm_up_s)
    if warm.get_total_count():
        return warm, warm_up_s > 0
    return merge(encoded for _, encoded in run.latency), False


def quantile_curve(histogram: HdrHistogram) -> list[tuple[float, float]]:
    """(quantile, milliseconds), as far as the number of records tells quantiles apart."""
    count = histogram.get_total_count()
    if count == 0:
        return []
    steps = math.ceil(math.log10(max(count, 10)) * _CURVE_POINTS_PER_NINE)
    quantiles = [1 - 10 ** (-step / _CURVE_POINTS_PER_NINE) for step in range(steps)]
    values = histogram.get_percentile_to_value_dict([100 * quantile for quantile in quantiles])
    curve = [(quantile, values[100 * quantile] / 1000) for quantile in quantiles]
    return [*curve, (1 - 1 / max(count, 10), histogram.get_max_value() / 1000)]


def percentile_rows(histogram: HdrHistogram) -> list[tuple[str, float]]:
    """(name, milliseconds): p50 to p99, further nines that at least one record stands for, the maximum."""
    count = histogram.get_total_count()
    if count == 0:
        return []
    percents = [50.0, 75.0, 90.0, 95.0, 99.0]
    percents += [round(100 - 10.0 ** (2 - n), n) for n in range(3, _TABLE_NINES + 1) if count >= 10**n]
    values = histogram.get_percentile_to_value_dict(percents)
    rows = [(f"p{percent:.10g}", values[percent] / 1000) for percent in percents]
    return [*rows, ("max", histogram.get_max_value() / 1000)]


def headlines(run: Run) -> list[Headline]:
    """What the first look at a run is for. Empty where no load and no stream has ended."""
    load = run.load
    if load is None:
        return _headlines_of_stream(run.stream, run.fault) if run.stream is not None else []
    # A run shorter than its warm-up has only the figures with it.
    latency = load.get("latency_ms") or load.get("latency_ms_with_warm_up") or {}
    lost = load.get("failed", 0) + load.get("unreported", 0)
    of_load, of_fault = (
        (section or {}).get(name) for section, name in ((load, "longest_gap"), (run.fault, "gap"))
    )
    return [
        Headline("throughput", load.get("records_per_s"), "records/s", True),
        Headline("data", load.get("megabytes_per_s"), "MB/s", True),
        *(
            Headline(f"latency {name}", latency.get(name), "ms", False)
            for name in ("p50", "p99", "p99.9", "max")
        ),
        Headline("longest gap", of_load["gap_ms"] if of_load else None, "ms", False),
        *([Headline("gap after a fault", of_fault["gap_ms"], "ms", False)] if of_fault else []),
        Headline("not acknowledged", lost, "", False),
        Headline("duration", load.get("duration_s"), "s", None),
    ]


def _headlines_of_stream(stream: dict[str, Any], fault: dict[str, Any] | None) -> list[Headline]:
    latency = stream.get("latency_ms") or stream.get("latency_ms_with_warm_up") or {}
    gap = (fault or {}).get("gap") or stream.get("longest_gap")
    return [
        Headline("throughput", stream.get("records_per_s"), "records/s", True),
        *(
            Headline(f"latency {name}", latency.get(name), "ms", False)
            for name in ("p50", "p99", "p99.9", "max")
        ),
        Headline("batch duration p50", (stream.get("batch_ms") or {}).get("p50"), "ms", False),
        Headline("longest gap", gap["gap_ms"] if gap else None, "ms", False),
        Headline("brokers killed", stream.get("broker_kills"), "", None),
        Headline("drivers killed", stream.get("driver_kills"), "", None),
        Headline("repeated records", stream.get("repeated"), "", False),
        Headline("duration", stream.get("duration_s"), "s", None),
    ]


def gaps(run: Run) -> list[dict[str, Any]]:
    """The longest time in which a partition acknowledged nothing: of the whole load; then from the first fault on."""
    of_load, of_fault = (run.load or run.stream or {}).get("longest_gap"), (run.fault or {}).get("gap")
    return [gap for gap in (of_load, of_fault) if gap]


def events(run: Run) -> list[Event]:
    """What befell the cluster, numbered in the order of time."""
    start_us = run.start_us
    if run.fault is None or start_us is None:
        return []
    in_order = sorted(run.fault.get("events", []), key=lambda event: int(event["at_us"]))
    return [
        Event(number, (event["at_us"] - start_us) / 1e6, str(event["what"]))
        for number, event in enumerate(in_order, 1)
    ]


def settings(run: Run) -> dict[str, str]:
    """All that decided the run, flat, in the order of config.json. Versions last."""
    flat: dict[str, str] = {}
    for section in ("spec", "options", "host", "versions"):
        for name, value in (run.config.get(section) or {}).items():
            if (section, name) != ("options", "run"):
                prefix = f"{section}." if section in ("host", "versions") else ""
                flat[prefix + name] = _setting(value)
    for name in ("started_at", "run_id"):
        if name in run.config:
            flat[name] = _setting(run.config[name])
    if run.verify is not None and "read_by" in run.verify:
        flat["read_by"] = _setting(run.verify["read_by"])
    return flat


def differing(one: dict[str, str], other: dict[str, str]) -> list[str]:
    """Names of the settings that are not the same in both."""
    names = [*one, *(name for name in other if name not in one)]
    return [name for name in names if one.get(name) != other.get(name)]


def _setting(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return {None: "not set", True: "true", False: "false"}[value]
    if isinstance(value, float):
        return f"{value:g}" if abs(value) < 1e6 else f"{value:.0f}"
    return str(value)


def _ms(microseconds: int | None) -> float | None:
    return None if microseconds is None else microseconds / 1000
