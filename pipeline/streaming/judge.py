"""What a streaming run promises, as checks on what was fed and on the three topics as they were read back.

What `records doubled` allows follows from the sink. `repeats` are the batches that a killed driver had begun: a sink at
least once may hold each of their records once more for each time that the batch was begun. For an exactly-once sink the
list is empty.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pipeline.streaming.driver import Repeated
from pipeline.streaming.spec import COUNT_SCHEMA_SQL, OUTPUT_SCHEMA_SQL, WINDOW_S, StreamSpec
from pipeline.verify.results import CheckResult, found, passed, result

FED = "fed records acknowledged"
IN_SOURCE = "acknowledged records in the source topic"
IN_SINK = "records of the source topic in the sink topic"
DOUBLED = "records doubled in the sink topic"
COUNTED = "counts by key and window as recomputed"


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a run left behind. Each frame is used many times: cache them."""

    deliveries: DataFrame
    """`feed.DELIVERY_SCHEMA`."""
    source: DataFrame
    """The topics with the columns of Spark's connector."""
    sink: DataFrame
    counts: DataFrame


@dataclass(frozen=True, slots=True)
class Verdict:
    checks: list[CheckResult]
    repeated: int
    """Records that the sink topic holds once more, as a sink at least once may after its driver was killed."""

    @property
    def passed(self) -> bool:
        return passed(self.checks)


def judge(evidence: Evidence, spec: StreamSpec, repeats: Sequence[Repeated]) -> Verdict:
    """All checks. A record whose feeding failed may be in the source topic or not; if it is, it must be in the sink."""
    acknowledged = evidence.deliveries.where("error is null")
    source = _read_source(evidence.source, spec).cache()
    sink = _read_sink(evidence.sink, source, spec).cache()
    try:
        copies = _copies(sink.where("is_ours"), repeats).cache()
        lost_in_source = acknowledged.join(source, "sequence", "left_anti").select("sequence", "partition")
        lost_in_sink = source.join(sink.where("is_ours"), _PLACE, "left_anti").select("sequence", *_PLACE)
        repeated = copies.agg(F.sum(F.least(F.col("copies") - 1, "allowed"))).first()
        assert repeated is not None, "an aggregate without groups has one row"
        checks = [
            found(FED, spec.records, evidence.deliveries.where("error is not null"), acknowledged.count()),
            found(IN_SOURCE, acknowledged.count(), lost_in_source),
            _none("acknowledged elsewhere than read", _misplaced(acknowledged, source)),
            _none("records doubled in the source topic", _twice_in_source(source)),
            _none("records in the source topic other than fed", source.where("not is_as_fed")),
            found(IN_SINK, source.count(), lost_in_sink),
            _none(DOUBLED, copies.where("copies > allowed + 1"), "copies - allowed - 1"),
            _none("alien records in the sink topic", sink.where("not is_ours")),
            _none("values other than computed", sink.where("is_ours and not is_value_expected")),
            _none("keys other than fed", sink.where("is_ours and not is_key_expected")),
            _none("records out of order in their key", _out_of_order(sink, copies)),
            *_judge_counts(evidence.source, evidence.counts),
        ]
        return Verdict(checks, repeated[0] or 0)
    finally:
        source.unpersist()
        sink.unpersist()


_PLACE = ["source_partition", "source_offset"]


def _read_source(topic: DataFrame, spec: StreamSpec) -> DataFrame:
    """Each record by its place, with the sequence number that it claims (null: an alien) and whether it is as fed."""
    claimed = F.get_json_object(F.col("value").cast("string"), "$.sequence").try_cast("bigint")
    sequence = F.when((claimed >= 0) & (claimed < spec.records), claimed)
    is_as_fed = (
        F.col("value").cast("string").eqNullSafe(spec.input_column(F.col("sequence")))
        & F.col("key").cast("string").eqNullSafe(spec.key_column(F.col("sequence")))
        & F.unix_millis("timestamp").eqNullSafe(spec.timestamp_ms_column(F.col("sequence")))
        & F.col("sequence").isNotNull()
    )
    return topic.withColumn("sequence", sequence).select(
        F.col("partition").alias("source_partition"),
        F.col("offset").alias("source_offset"),
        "sequence",
        is_as_fed.alias("is_as_fed"),
    )


def _read_sink(topic: DataFrame, source: DataFrame, spec: StreamSpec) -> DataFrame:
    """Each record with what it says of itself; `is_ours`: the source topic has such a record at that place."""
    fields = F.from_json(F.col("value").cast("string"), OUTPUT_SCHEMA_SQL)
    said = topic.withColumn("fields", fields).select(
        "partition", "offset", "timestamp", "key", "value", "fields.sequence", "fields.run", *_fields_place()
    )
    known = source.select(F.col("sequence").alias("true_sequence"), *_PLACE)
    sequence = F.col("sequence")
    expected = spec.output_column(sequence, F.col("source_partition"), F.col("source_offset"))
    is_ours = (F.col("run") == spec.run_id) & (F.col("true_sequence") == sequence)
    return said.join(known, _PLACE, "left").select(
        "partition",
        "offset",
        "timestamp",
        "sequence",
        *_PLACE,
        F.coalesce(is_ours, F.lit(False)).alias("is_ours"),
        F.col("key").cast("string").alias("key"),
        F.col("key").cast("string").eqNullSafe(spec.key_column(sequence)).alias("is_key_expected"),
        F.col("value").cast("string").eqNullSafe(expected).alias("is_value_expected"),
    )


def _fields_place() -> list[Column]:
    return [F.col(f"fields.{name}").alias(name) for name in _PLACE]


def _copies(ours: DataFrame, repeats: Sequence[Repeated]) -> DataFrame:
    """How often each record of the source is in the sink, and how many copies more than one are `allowed`."""
    tries = [F.when(_is_within(repeat), 1).otherwise(0) for repeat in repeats]
    allowed: Column = reduce(lambda one, other: one + other, tries, F.lit(0))
    return ours.groupBy("sequence", *_PLACE).agg(F.count("*").alias("copies")).withColumn("allowed", allowed)


def _is_within(repeat: Repeated) -> Column:
    """Whether the record belongs to that batch."""
    ranges = [
        (F.col("source_partition") == int(partition))
        & (F.col("source_offset") >= repeat.starts.get(partition, 0))
        & (F.col("source_offset") < end)
        for partition, end in repeat.ends.items()
    ]
    return reduce(lambda one, other: one | other, ranges, F.lit(False))


def _misplaced(acknowledged: DataFrame, source: DataFrame) -> DataFrame:
    """The acknowledgement named an offset, and something else is there."""
    there = source.select(*_PLACE, F.col("sequence").alias("found"))
    places = acknowledged.where("offset is not null").select(
        "sequence",
        F.col("partition").alias("source_partition"),
        F.col("offset").alias("source_offset"),
    )
    joined = places.join(there, _PLACE, "left")
    return joined.where(~F.col("found").eqNullSafe(F.col("sequence")))


def _twice_in_source(source: DataFrame) -> DataFrame:
    return source.where("sequence is not null").groupBy("sequence").count().where("count > 1")


def _out_of_order(sink: DataFrame, copies: DataFrame) -> DataFrame:
    """Of another order in the sink than in the source, in the same key and partition. Those with copies are left out:
    they are judged by their number."""
    once = copies.where("copies = 1").select(*_PLACE)
    ours = sink.where("is_ours and is_key_expected").join(once, _PLACE, "left_semi")
    in_order = Window.partitionBy("key", "partition").orderBy("offset")
    return (
        ours.withColumn("before", F.lag("source_offset").over(in_order))
        .where("source_offset <= before")
        .select("sequence", "before", "partition", "offset")
    )


def _judge_counts(source: DataFrame, topic: DataFrame) -> list[CheckResult]:
    """The newest count of each key and window against one over the whole source topic."""
    start_s = F.floor(F.unix_millis("timestamp") / (WINDOW_S * 1000)).cast("bigint") * WINDOW_S
    group = ["key", "window_start_s"]
    expected = (
        source.select(F.col("key").cast("string").alias("key"), start_s.alias("window_start_s"))
        .groupBy(*group)
        .agg(F.count("*").alias("expected"))
    )
    told = topic.select(
        F.from_json(F.col("value").cast("string"), COUNT_SCHEMA_SQL).alias("told"), "partition", "offset"
    )
    newest = (
        told.where("told.key is not null and told.window_start_s is not null")
        .groupBy(F.col("told.key").alias("key"), F.col("told.window_start_s").alias("window_start_s"))
        .agg(
            F.max_by("told.records", "offset").alias("records"), F.countDistinct("partition").alias("places")
        )
    )
    both = expected.join(newest, group, "full").cache()
    wrong = both.where("expected is not null and (records is null or records != expected or places > 1)")
    return [
        found(COUNTED, both.where("expected is not null").count(), wrong),
        _none("counts of keys and windows that are not there", both.where("expected is null")),
    ]


def _none(name: str, offenders: DataFrame, weight: str = "1") -> CheckResult:
    total = offenders.agg(F.sum(F.expr(weight))).first()
    assert total is not None, "an aggregate without groups has one row"
    return result(name, total[0] or 0, _shown(offenders))


def _shown(offenders: DataFrame) -> DataFrame:
    """What a sample says of them."""
    return offenders.drop("timestamp", "is_ours", "is_as_fed", "is_value_expected", "is_key_expected")
