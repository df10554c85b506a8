"""What is left of the promises when a topic is compacted.

A record may be gone once a newer one of its key is there; of a key whose newest record is a tombstone, all may be. What
must not be: the newest value lost, or an older value where the key was deleted. How far the log is compacted is no
promise (Kafka keeps superseded records that it has not come to), but it is told.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipeline.run_files import ABORTED
from pipeline.workloads.records import key_column, topic_column, value_column
from pipeline.workloads.spec import RunSpec


def newest(acknowledged: DataFrame, deliveries: DataFrame, ours: DataFrame, spec: RunSpec) -> DataFrame:
    """For each topic and key: `sequence` of the newest acknowledged record, whether it `is_tombstone`, and
    `sequence_read`, that of the newest one read.

    Keys are left out of which a newer record may be in the log without having been acknowledged: whatever it is, it may
    have taken the place of the acknowledged one.
    """
    sequence = F.col("sequence")
    of_key = [topic_column(spec, sequence).alias("topic"), key_column(spec, sequence).alias("key")]
    known = (
        acknowledged.select("sequence", *of_key, value_column(spec, sequence).isNull().alias("is_tombstone"))
        .groupBy("topic", "key")
        .agg(F.max("sequence").alias("sequence"), F.max_by("is_tombstone", "sequence").alias("is_tombstone"))
    )
    settled = deliveries.where(F.col("error").isNull() | (F.col("error") == ABORTED)).select("sequence")
    session = deliveries.sparkSession
    doubtful = (
        session.range(spec.records)
        .select(F.col("id").alias("sequence"))
        .join(settled, "sequence", "left_anti")
        .select("sequence", *of_key)
        .groupBy("topic", "key")
        .agg(F.max("sequence").alias("sequence_in_doubt"))
    )
    read = ours.groupBy("topic", "key").agg(F.max("sequence").alias("sequence_read"))
    return (
        known.join(doubtful, ["topic", "key"], "left")
        .where("sequence_in_doubt is null or sequence_in_doubt < sequence")
        .join(read, ["topic", "key"], "left")
        .select("topic", "key", "sequence", "is_tombstone", "sequence_read")
    )


def newest_lost(newest_of_keys: DataFrame) -> DataFrame:
    """Keys whose newest value is not there."""
    return newest_of_keys.where(
        "not is_tombstone and (sequence_read is null or sequence_read < sequence)"
    ).select("key", "topic", "sequence", "sequence_read")


def came_back(newest_of_keys: DataFrame) -> DataFrame:
    """Keys that were deleted, and of which a reader now finds a value and no tombstone behind it."""
    return newest_of_keys.where("is_tombstone and sequence_read < sequence").select(
        "key", "topic", "sequence", "sequence_read"
    )


def debt(ours: DataFrame, acknowledged: int) -> dict[str, Any]:
    """How far the log is compacted: what was acknowledged and is gone, and what is there although a newer record of
    its key is."""
    counted = ours.groupBy("topic", "key").agg(
        F.count("*").alias("records"), F.count_if("is_tombstone").alias("tombstones")
    )
    sums = counted.agg(
        F.sum("records").alias("records"), F.count("*").alias("keys"), F.sum("tombstones").alias("tombstones")
    ).first()
    assert sums is not None, "an aggregate without groups has one row"
    records = sums["records"] or 0
    return {
        "acknowledged": acknowledged,
        "records": records,
        "superseded": records - sums["keys"],
        "tombstones": sums["tombstones"] or 0,
    }
