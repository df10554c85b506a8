"""Latency histograms (HDR: high dynamic range) that merge without loss, one per second of the run.

Percentiles are read from merged histograms only; an average of percentiles is a percentile of nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

import pyarrow as pa
from hdrh.histogram import HdrHistogram

_LOWEST_US = 1
# An hour; a record is given up long before.
_HIGHEST_US = 3_600_000_000
_SIGNIFICANT_DIGITS = 3
PERCENTILES = (50.0, 90.0, 95.0, 99.0, 99.9)

HISTOGRAM_SCHEMA_SQL = "second bigint, records bigint, histogram binary"
_HISTOGRAM_SCHEMA = pa.schema([("second", pa.int64()), ("records", pa.int64()), ("histogram", pa.binary())])


def encode_histograms(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """One encoded histogram for each second of one task's (second, latency_us). For `mapInArrow`."""
    # To make a histogram takes as long as to record eighty values.
    histograms: defaultdict[int, HdrHistogram] = defaultdict(new_histogram)
    for batch in batches:
        # To record a value with its count is ten times faster than one by one.
        counted = (
            pa.Table.from_batches([batch]).group_by(["second", "latency_us"]).aggregate([([], "count_all")])
        )
        for row in counted.to_pylist():
            record(histograms[row["second"]], row["latency_us"], row["count_all"])
    rows = sorted(histograms.items())
    yield pa.RecordBatch.from_arrays(
        [
            pa.array([second for second, _ in rows], pa.int64()),
            pa.array([histogram.get_total_count() for _, histogram in rows], pa.int64()),
            pa.array([histogram.encode() for _, histogram in rows], pa.binary()),
        ],
        schema=_HISTOGRAM_SCHEMA,
    )


def new_histogram() -> HdrHistogram:
    return HdrHistogram(_LOWEST_US, _HIGHEST_US, _SIGNIFICANT_DIGITS)


def record(histogram: HdrHistogram, latency_us: int, count: int) -> None:
    """Add a latency; one outside of the histogram's range counts at its edge rather than vanish."""
    clipped_us = min(max(latency_us, _LOWEST_US), _HIGHEST_US)
    recorded = histogram.record_value(clipped_us, count)
    assert recorded, "a clipped value is in range"


def merge(encoded: Iterable[bytes]) -> HdrHistogram:
    """One histogram of everything that the encoded ones hold."""
    merged = new_histogram()
    for histogram in encoded:
        merged.decode_and_add(histogram)
    return merged


def percentiles_ms(histogram: HdrHistogram) -> dict[str, float] | None:
    """p50 to p99.9, mean and maximum in milliseconds; None of an empty histogram."""
    if histogram.get_total_count() == 0:
        return None
    named = {
        "p" + f"{percentile:g}": histogram.get_value_at_percentile(percentile) / 1000
        for percentile in PERCENTILES
    }
    return {**named, "max": histogram.get_max_value() / 1000, "mean": histogram.get_mean_value() / 1000}
