"""What a run promises, as checks on two frames: what was acknowledged, and what was read back.

Each check counts violations and expects none, but for the first, which counts the acknowledged records that are there.
A record that was never acknowledged may be in the log or not; both are right. Of a compacted topic the promises are
fewer: `compaction.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pipeline.run_files import ABORTED
from pipeline.verify.compaction import came_back, newest, newest_lost
from pipeline.verify.results import CheckResult, found, result
from pipeline.workloads import checked
from pipeline.workloads.keys import partition_of
from pipeline.workloads.records import (
    HEADER_RUN,
    HEADER_SEQUENCE,
    headers_column,
    key_column,
    timestamp_ms_column,
    topic_column,
    value_column,
)
from pipeline.workloads.spec import RunSpec, ValueKind

#: The check that counts what is there, where all others count what should not be.
FOUND = "acknowledged records found"
#: Its name of a compacted topic.
FOUND_NEWEST = "keys whose newest value is kept"
CAME_BACK = "deleted keys that came back"
ABORTED_SERVED = "records of aborted transactions served"
#: Where a record is.
_PLACE = ["topic", "partition", "offset"]


def judge(read: DataFrame, spec: RunSpec) -> DataFrame:
    """What the checks need of each record read, without its payload: small enough to keep.

    `sequence` is null in a record that is not of this run ("alien"). `position` is the place in the order of
    reading, ascending within a topic partition: the frame's own order, as its source delivered it.
    """
    # Headers as written: a name that occurs twice makes the record an alien rather than stopping the job.
    run, claimed = _header("headers", HEADER_RUN), _header("headers", HEADER_SEQUENCE)
    number = claimed.cast("string").try_cast("bigint")
    ours = (run == F.lit(spec.run_id.encode())) & (number >= 0) & (number < spec.records)
    sequence = F.col("sequence")
    is_expected = F.col("value").eqNullSafe(value_column(spec, sequence))
    # Other kinds have no checksum of their own. A tombstone has nothing to check.
    intact = checked.is_intact(F.col("value")) if spec.values is ValueKind.CHECKED else is_expected
    return (
        read.withColumn("position", F.monotonically_increasing_id())
        .withColumn("sequence", F.when(ours, number))
        .select(
            "position",
            "topic",
            "partition",
            "offset",
            "key",
            "sequence",
            F.col("value").isNull().alias("is_tombstone"),
            (_holds(intact) | F.col("value").isNull()).alias("payload_intact"),
            is_expected.alias("value_expected"),
            F.col("topic").eqNullSafe(topic_column(spec, sequence)).alias("topic_expected"),
            F.col("key").eqNullSafe(key_column(spec, sequence)).alias("key_expected"),
            _holds(F.col("headers") == headers_column(spec, sequence)).alias("headers_expected"),
            F.unix_millis("timestamp")
            .eqNullSafe(timestamp_ms_column(spec, sequence))
            .alias("timestamp_expected"),
        )
    )


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What besides the records decides which promises hold."""

    partitions: int
    """Of each topic, when the run was loaded."""
    is_compacted: bool = False
    """Whether the topics' cleanup.policy lets newer records of a key take the place of older ones."""
    is_committed_only: bool = True
    """Whether the reader asked for read_committed."""


def run_checks(
    judged: DataFrame, deliveries: DataFrame, spec: RunSpec, given: Circumstances
) -> list[CheckResult]:
    """All checks of one run. `judged` and `deliveries` are used many times: cache them."""
    ours = judged.where("sequence is not null")
    acknowledged = deliveries.where("error is null")
    offenders = {
        "duplicate records": _duplicates(ours),
        "records out of order in their key": _out_of_order(ours),
        "keys on more than one partition": _scattered_keys(ours),
        "keys on another partition than their hash says": _misrouted_keys(ours, given.partitions),
        "offsets not above the one before": _offsets_not_increasing(judged),
    }
    if given.is_compacted:
        newest_of_keys = newest(acknowledged, deliveries, ours, spec)
        kept = found(FOUND_NEWEST, newest_of_keys.count(), newest_lost(newest_of_keys))
        offenders = {
            "acknowledged elsewhere than read": _moved(acknowledged, ours),
            CAME_BACK: came_back(newest_of_keys),
            **offenders,
        }
    else:
        kept = found(FOUND, acknowledged.count(), _missing(acknowledged, ours))
        offenders = {"acknowledged elsewhere than read": _misplaced(acknowledged, judged), **offenders}
    if spec.transaction_records and given.is_committed_only:
        offenders[ABORTED_SERVED] = _aborted_served(deliveries, ours)
    is_ours = F.col("sequence").isNotNull()
    each_record = {
        "alien records": ~is_ours,
        "payloads that miss their checksum": ~F.col("payload_intact"),
        "values other than sent": is_ours & ~F.col("value_expected"),
        "keys other than sent": is_ours & ~F.col("key_expected"),
        "headers other than sent": is_ours & ~F.col("headers_expected"),
        "timestamps other than sent": is_ours & ~F.col("timestamp_expected"),
        "records in another topic than sent": is_ours & ~F.col("topic_expected"),
    }
    return [
        kept,
        *(result(name, frame.count(), frame) for name, frame in offenders.items()),
        *_of_each_record(judged, each_record),
    ]


def found_uncommitted(judged: DataFrame, deliveries: DataFrame) -> CheckResult:
    """Whether a reader with read_uncommitted finds all that was acknowledged, too."""
    acknowledged = deliveries.where("error is null")
    missing = _missing(acknowledged, judged.where("sequence is not null"))
    return found(f"{FOUND} by read_uncommitted", acknowledged.count(), missing)


def _of_each_record(judged: DataFrame, violations: dict[str, Column]) -> list[CheckResult]:
    """Checks that look at one record alone, counted in one pass over all."""
    counts = judged.agg(
        *(F.count_if(violation).alias(name) for name, violation in violations.items())
    ).first()
    assert counts is not None, "an aggregate without groups has one row"
    return [
        result(name, counts[name], judged.where(violation).select("sequence", *_PLACE))
        for name, violation in violations.items()
    ]


def _missing(acknowledged: DataFrame, ours: DataFrame) -> DataFrame:
    return acknowledged.join(ours, "sequence", "left_anti").select("sequence", *_PLACE)


def _misplaced(acknowledged: DataFrame, judged: DataFrame) -> DataFrame:
    """The acknowledgement named an offset, and something else is there.

    Without an offset (a retry of a batch that the broker held already), nothing was claimed.
    """
    there = judged.select(*_PLACE, F.col("sequence").alias("sequence_there"))
    named = acknowledged.where("offset >= 0").select("sequence", *_PLACE)
    return named.join(there, _PLACE, "left").where("not (sequence_there <=> sequence)")


def _moved(acknowledged: DataFrame, ours: DataFrame) -> DataFrame:
    """Records that are there, and not where their acknowledgement says: compaction keeps offsets."""
    named = acknowledged.where("offset >= 0").select(
        "sequence", *(F.col(name).alias(f"acknowledged_{name}") for name in _PLACE)
    )
    is_elsewhere = " or ".join(f"{name} != acknowledged_{name}" for name in _PLACE)
    return ours.select("sequence", *_PLACE).join(named, "sequence").where(is_elsewhere)


def _aborted_served(deliveries: DataFrame, ours: DataFrame) -> DataFrame:
    aborted = deliveries.where(F.col("error") == ABORTED).select("sequence")
    return ours.join(aborted, "sequence", "left_semi").select("sequence", *_PLACE)


def _duplicates(ours: DataFrame) -> DataFrame:
    """Every copy beyond the first."""
    copies = Window.partitionBy("sequence").orderBy(*_PLACE, "position")
    return ours.withColumn("copy", F.row_number().over(copies)).where("copy > 1").select("sequence", *_PLACE)


def _out_of_order(ours: DataFrame) -> DataFrame:
    """A key's sequences must ascend with its offsets: one producer sent them in this order."""
    in_log = Window.partitionBy("topic", "partition", "key").orderBy("offset", "position")
    return (
        ours.where("key is not null")
        .withColumn("sequence_before", F.lag("sequence").over(in_log))
        .where("sequence <= sequence_before")
        .select("key", *_PLACE, "sequence", "sequence_before")
    )


def _scattered_keys(ours: DataFrame) -> DataFrame:
    return (
        ours.where("key is not null")
        .groupBy("topic", "key")
        .agg(F.sort_array(F.collect_set("partition")).alias("partitions"))
        .where(F.size("partitions") > 1)
    )


def _misrouted_keys(ours: DataFrame, partitions: int) -> DataFrame:
    """Judged by the first record of each: a key that is scattered as well is told by its own check."""
    right = F.udf(lambda key: partition_of(bytes(key), partitions), "int")
    firsts = (
        ours.where("key is not null")
        .groupBy("topic", "key")
        .agg(F.min_by("partition", F.struct("sequence", "position")).alias("partition"))
    )
    return firsts.withColumn("right_partition", right("key")).where("partition != right_partition")


def _offsets_not_increasing(judged: DataFrame) -> DataFrame:
    as_read = Window.partitionBy("topic", "partition").orderBy("position")
    return (
        judged.withColumn("offset_before", F.lag("offset").over(as_read))
        .where("offset <= offset_before")
        .select(*_PLACE, "offset_before")
    )


def _header(headers: str, name: str) -> Column:
    """The value of the one header of this name; null where there is none or more than one."""
    values = F.filter(headers, lambda header: header["key"] == name)
    return F.when(F.size(values) == 1, F.get(values, F.lit(0))["value"])


def _holds(condition: Column) -> Column:
    """Null means that there was nothing to compare: the condition does not hold."""
    return F.coalesce(condition, F.lit(False))
