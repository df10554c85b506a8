"""What a run promises, as checks on two frames: what was acknowledged, and what was read back.

Each check counts violations and expects none, but for the first, which counts the acknowledged records that are there.
A record that was never acknowledged may be in the log or not; both are right.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pipeline.workloads.records import (
    HEADER_RUN,
    HEADER_SEQUENCE,
    RunSpec,
    checksum_column,
    headers_column,
    key_column,
    timestamp_ms_column,
    value_column,
)

#: The check that counts what is there, where all others count what should not be.
FOUND = "acknowledged records found"
_SAMPLE_SIZE = 5


@dataclass(frozen=True, slots=True)
class CheckResult:
    name: str
    expected: int
    actual: int
    status: str
    """PASS or FAIL."""
    sample: list[dict[str, Any]]
    """Up to five of the offenders."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def judge(read: DataFrame, spec: RunSpec) -> DataFrame:
    """What the checks need of each record read, without its payload: small enough to keep.

    `sequence` is null in a record that is not of this run ("alien"). `position` is the place in the order of
    reading, ascending within a topic partition: the frame's own order, as its source delivered it.
    """
    # Headers as written: a name that occurs twice makes the record an alien rather than stopping the job.
    run, claimed = _header("headers", HEADER_RUN), _header("headers", HEADER_SEQUENCE)
    number = claimed.cast("string").try_cast("bigint")
    ours = (run == F.lit(spec.run_id.encode())) & (number >= 0) & (number < spec.records)
    text = F.col("value").cast("string")
    payload = F.get_json_object(text, "$.payload")
    sequence = F.col("sequence")
    return (
        read.withColumn("position", F.monotonically_increasing_id())
        .withColumn("sequence", F.when(ours, number))
        .select(
            "position",
            "partition",
            "offset",
            "key",
            "sequence",
            F.xxhash64("value").alias("value_hash"),
            _holds(F.get_json_object(text, "$.crc32") == checksum_column(payload)).alias("payload_intact"),
            F.col("value").eqNullSafe(value_column(spec, sequence)).alias("value_expected"),
            F.col("key").eqNullSafe(key_column(spec, sequence)).alias("key_expected"),
            _holds(F.col("headers") == headers_column(spec, sequence)).alias("headers_expected"),
            F.unix_millis("timestamp")
            .eqNullSafe(timestamp_ms_column(spec, sequence))
            .alias("timestamp_expected"),
        )
    )


def run_checks(judged: DataFrame, deliveries: DataFrame, spec: RunSpec) -> list[CheckResult]:
    """All checks of one run. `judged` and `deliveries` are used many times: cache them."""
    ours = judged.where("sequence is not null")
    acknowledged = deliveries.where("error is null")
    offenders = {
        "acknowledged elsewhere than read": _misplaced(acknowledged, judged),
        "duplicate records": _duplicates(ours),
        "records out of order in their key": _out_of_order(ours),
        "keys on more than one partition": _scattered_keys(ours),
        "offsets not above the one before": _offsets_not_increasing(judged),
    }
    is_ours = F.col("sequence").isNotNull()
    each_record = {
        "alien records": ~is_ours,
        "payloads that miss their checksum": ~F.col("payload_intact"),
        "values other than sent": is_ours & ~F.col("value_expected"),
        "keys other than sent": is_ours & ~F.col("key_expected"),
        "headers other than sent": is_ours & ~F.col("headers_expected"),
        "timestamps other than sent": is_ours & ~F.col("timestamp_expected"),
    }
    return [
        _found(acknowledged, _missing(acknowledged, ours)),
        *(_result(name, frame.count(), frame) for name, frame in offenders.items()),
        *_of_each_record(judged, each_record),
    ]


def passed(results: list[CheckResult]) -> bool:
    return all(result.status == "PASS" for result in results)


def _found(acknowledged: DataFrame, missing: DataFrame) -> CheckResult:
    """Nothing acknowledged proves nothing: then the run has not been tested, and must not look as if it had."""
    expected, lost = acknowledged.count(), _result(FOUND, missing.count(), missing)
    status = "FAIL" if expected == 0 else lost.status
    return CheckResult(FOUND, expected, expected - lost.actual, status, lost.sample)


def _of_each_record(judged: DataFrame, violations: dict[str, Column]) -> list[CheckResult]:
    """Checks that look at one record alone, counted in one pass over all."""
    counts = judged.agg(
        *(F.count_if(violation).alias(name) for name, violation in violations.items())
    ).first()
    assert counts is not None, "an aggregate without groups has one row"
    return [
        _result(name, counts[name], judged.where(violation).select("sequence", "partition", "offset"))
        for name, violation in violations.items()
    ]


def _result(name: str, count: int, offenders: DataFrame) -> CheckResult:
    sample = [] if count == 0 else [_plain(row.asDict()) for row in offenders.limit(_SAMPLE_SIZE).collect()]
    return CheckResult(name, 0, count, "PASS" if count == 0 else "FAIL", sample)


def _plain(fields: dict[str, Any]) -> dict[str, Any]:
    """Keys as text, for JSON."""
    return {
        name: bytes(value).decode(errors="backslashreplace")
        if isinstance(value, bytes | bytearray)
        else value
        for name, value in fields.items()
    }


def _missing(acknowledged: DataFrame, ours: DataFrame) -> DataFrame:
    return acknowledged.join(ours, "sequence", "left_anti").select("sequence", "partition", "offset")


def _misplaced(acknowledged: DataFrame, judged: DataFrame) -> DataFrame:
    """The acknowledgement named an offset, and something else is there.

    Without an offset (a retry of a batch that the broker held already), nothing was claimed.
    """
    there = judged.select("partition", "offset", F.col("sequence").alias("sequence_there"))
    named = acknowledged.where("offset >= 0").select("sequence", "partition", "offset")
    return named.join(there, ["partition", "offset"], "left").where("not (sequence_there <=> sequence)")


def _duplicates(ours: DataFrame) -> DataFrame:
    """Every copy beyond the first."""
    copies = Window.partitionBy("sequence").orderBy("partition", "offset", "position")
    return (
        ours.withColumn("copy", F.row_number().over(copies))
        .where("copy > 1")
        .select("sequence", "partition", "offset")
    )


def _out_of_order(ours: DataFrame) -> DataFrame:
    """A key's sequences must ascend with its offsets: one producer sent them in this order."""
    in_log = Window.partitionBy("partition", "key").orderBy("offset", "position")
    return (
        ours.withColumn("sequence_before", F.lag("sequence").over(in_log))
        .where("sequence <= sequence_before")
        .select("key", "partition", "offset", "sequence", "sequence_before")
    )


def _scattered_keys(ours: DataFrame) -> DataFrame:
    return (
        ours.groupBy("key")
        .agg(F.sort_array(F.collect_set("partition")).alias("partitions"))
        .where(F.size("partitions") > 1)
    )


def _offsets_not_increasing(judged: DataFrame) -> DataFrame:
    as_read = Window.partitionBy("partition").orderBy("position")
    return (
        judged.withColumn("offset_before", F.lag("offset").over(as_read))
        .where("offset <= offset_before")
        .select("partition", "offset", "offset_before")
    )


def _header(headers: str, name: str) -> Column:
    """The value of the one header of this name; null where there is none or more than one."""
    values = F.filter(headers, lambda header: header["key"] == name)
    return F.when(F.size(values) == 1, F.get(values, F.lit(0))["value"])


def _holds(condition: Column) -> Column:
    """Null means that there was nothing to compare: the condition does not hold."""
    return F.coalesce(condition, F.lit(False))
