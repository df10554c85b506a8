"""Latency, throughput and gaps over the time of a run, from what became of each record and when."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from pipeline.load.latency import HISTOGRAM_SCHEMA_SQL, encode_histograms, merge, percentiles_ms
from pipeline.run_files import LATENCY, THROUGHPUT
from pipeline.run_tables import write_table


def write_over_time(acknowledged: DataFrame, run: Path, start_us: int, warm_up_s: int) -> dict[str, Any]:
    """Write the files of latency and throughput, whose seconds count from `start_us`; the figures that follow.

    `acknowledged`: topic, partition, value_bytes, intended_at_us, acknowledged_at_us, latency_us. Records that were
    meant to be sent in the first `warm_up_s` seconds are left out of `latency_ms`.
    """
    histograms = _latency(acknowledged, start_us).toArrow()
    write_table(run / LATENCY, histograms)
    write_table(run / THROUGHPUT, _throughput(acknowledged, start_us).toArrow())
    rows = histograms.select(["second", "histogram"]).to_pylist()
    warm = [row["histogram"] for row in rows if row["second"] >= warm_up_s]
    return {
        "start_us": start_us,
        "latency_ms": percentiles_ms(merge(warm)),
        "latency_ms_with_warm_up": percentiles_ms(merge(row["histogram"] for row in rows)),
        "warm_up_s": warm_up_s,
        "longest_gap": longest_gap(acknowledged),
    }


def longest_gap(acknowledged: DataFrame, since_us: int = 0) -> dict[str, Any] | None:
    """The longest time in which one partition acknowledged nothing, between two of its acknowledgements.

    Per partition, since the others go on while one of them has lost its leader. With a steady load on every
    partition this is the time that a fail-over took. `since_us`: only gaps that end later. None where there are
    none.
    """
    in_time = Window.partitionBy("topic", "partition").orderBy("acknowledged_at_us")
    before = F.lag("acknowledged_at_us").over(in_time)
    gaps = acknowledged.select(
        "topic",
        "partition",
        before.alias("from_us"),
        (F.col("acknowledged_at_us") - before).alias("gap_us"),
        "acknowledged_at_us",
    ).where(F.col("acknowledged_at_us") >= since_us)
    per_partition = (
        gaps.where("gap_us is not null")
        .groupBy("topic", "partition")
        .agg(F.max_by(F.struct("gap_us", "from_us"), "gap_us").alias("longest"))
        .orderBy("topic", "partition")
        .collect()
    )
    if not per_partition:
        return None
    worst = max(per_partition, key=lambda row: row["longest"]["gap_us"])
    return {
        "gap_ms": worst["longest"]["gap_us"] / 1000,
        "topic": worst["topic"],
        "partition": worst["partition"],
        "from_us": worst["longest"]["from_us"],
        "gap_ms_by_partition": {
            f"{row['topic']}-{row['partition']}": row["longest"]["gap_us"] / 1000 for row in per_partition
        },
    }


def _latency(acknowledged: DataFrame, start_us: int) -> DataFrame:
    """Latencies per task and second of intended send time."""
    second = F.floor((F.col("intended_at_us") - F.lit(start_us)) / 1_000_000).cast("bigint")
    return acknowledged.select(second.alias("second"), "latency_us").mapInArrow(
        encode_histograms, HISTOGRAM_SCHEMA_SQL
    )


def _throughput(acknowledged: DataFrame, start_us: int) -> DataFrame:
    """Acknowledgements per second of the run and partition."""
    second = F.floor((F.col("acknowledged_at_us") - F.lit(start_us)) / 1_000_000).cast("bigint")
    return (
        acknowledged.groupBy(second.alias("second"), "topic", "partition")
        .agg(F.count("*").alias("records"), F.sum("value_bytes").alias("value_bytes"))
        .orderBy("second", "topic", "partition")
    )
