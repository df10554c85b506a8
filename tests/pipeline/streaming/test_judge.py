"""Each kind of violation is planted into a run that is right otherwise, and must be found by its check."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra: pip install -e '.[spark]'")

from pyspark.sql import SparkSession

from pipeline.streaming.driver import Repeated
from pipeline.streaming.judge import COUNTED, DOUBLED, FED, IN_SINK, IN_SOURCE, Evidence, Verdict, judge
from pipeline.streaming.spec import StreamSpec

SPEC = StreamSpec(
    topic="s",
    records=60,
    rate_per_s=3.0,
    record_size_bytes=200,
    keys=7,
    seed=5,
    start_timestamp_ms=1_795_000_003_000,
)
PARTITIONS = 2
TOPIC_SCHEMA_SQL = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp"
DELIVERY_SCHEMA_SQL = (
    "sequence bigint, topic string, partition int, offset bigint, intended_at_us bigint,"
    " acknowledged_at_us bigint, error string"
)

Row = dict[str, Any]


@dataclass
class Run:
    """What a faithful run leaves behind, for the plants to spoil. A topic's rows are in the order of their offsets."""

    deliveries: list[Row] = field(default_factory=list)
    source: list[Row] = field(default_factory=list)
    sink: list[Row] = field(default_factory=list)
    counts: list[Row] = field(default_factory=list)


def a_faithful_run() -> Run:
    run = Run()
    counts: dict[tuple[str, int], int] = {}
    for sequence in range(SPEC.records):
        key, timestamp_ms = SPEC.key(sequence), SPEC.timestamp_ms(sequence)
        partition = sequence % SPEC.keys % PARTITIONS
        offset = append(run.source, key, SPEC.value(sequence), partition, timestamp_ms)
        run.deliveries.append(
            {"sequence": sequence, "topic": "s-in", "partition": partition, "offset": offset, "error": None}
        )
        amount = json.loads(SPEC.value(sequence))["amount"]
        output = {
            "run": SPEC.run_id,
            "sequence": sequence,
            "amount": amount,
            "with_tax": amount * 119 // 100,
            "source_partition": partition,
            "source_offset": offset,
        }
        append(run.sink, key, json.dumps(output, separators=(",", ":")).encode(), partition, timestamp_ms)
        group = (key.decode(), timestamp_ms // 10_000 * 10)
        counts[group] = counts.get(group, 0) + 1
        told = {"key": group[0], "window_start_s": group[1], "records": counts[group]}
        append(run.counts, b"", json.dumps(told).encode(), 0, timestamp_ms)
    return run


def append(topic: list[Row], key: bytes, value: bytes, partition: int, timestamp_ms: int) -> int:
    """Its offset."""
    offset = len([row for row in topic if row["partition"] == partition])
    topic.append(
        {"key": key, "value": value, "partition": partition, "offset": offset, "timestamp_ms": timestamp_ms}
    )
    return offset


def again(topic: list[Row], row: Row) -> None:
    append(topic, row["key"], row["value"], row["partition"], row["timestamp_ms"])


def judged(spark: SparkSession, run: Run, repeats: list[Repeated] | None = None) -> Verdict:
    def topic(rows: list[Row]) -> Any:
        return spark.createDataFrame(
            [
                (
                    row["key"], row["value"], "t", row["partition"], row["offset"],
                    datetime.fromtimestamp(row["timestamp_ms"] / 1000, UTC),
                )
                for row in rows
            ],
            TOPIC_SCHEMA_SQL,
        )  # fmt: skip

    deliveries = spark.createDataFrame(
        [
            (row["sequence"], row["topic"], row["partition"], row["offset"], 0, 0, row["error"])
            for row in run.deliveries
        ],
        DELIVERY_SCHEMA_SQL,
    )
    evidence = Evidence(deliveries, topic(run.source), topic(run.sink), topic(run.counts))
    return judge(evidence, SPEC, repeats or [])


def failures(verdict: Verdict) -> dict[str, int]:
    return {check.name: check.actual for check in verdict.checks if check.status == "FAIL"}


def test_a_faithful_run_passes_every_check(spark: SparkSession) -> None:
    verdict = judged(spark, a_faithful_run())
    assert failures(verdict) == {}
    assert verdict.passed
    found = {check.name: check.actual for check in verdict.checks if check.actual}
    # 60 records in 20 s, that is two windows and the rest of one, of seven keys.
    assert found == {FED: 60, IN_SOURCE: 60, IN_SINK: 60, COUNTED: 21}
    assert verdict.repeated == 0


def test_a_record_lost_by_the_query_is_named(spark: SparkSession) -> None:
    run = a_faithful_run()
    del run.sink[17]
    verdict = judged(spark, run)
    assert failures(verdict) == {IN_SINK: 59}
    (check,) = [check for check in verdict.checks if check.name == IN_SINK]
    assert [offender["sequence"] for offender in check.sample] == [17]


def test_a_record_lost_by_the_cluster_before_the_query_saw_it(spark: SparkSession) -> None:
    """Its place holds nothing, the query never had it, and the counts agree with the topic as it is."""
    run = a_faithful_run()
    lost = run.source.pop()
    run.sink.pop()
    run.counts.pop()
    assert failures(judged(spark, run)) == {IN_SOURCE: 59, "acknowledged elsewhere than read": 1}
    assert lost["value"] == SPEC.value(59)


def test_a_record_that_was_not_acknowledged_fails_the_feed_alone(spark: SparkSession) -> None:
    run = a_faithful_run()
    run.deliveries[3] |= {"partition": None, "offset": None, "error": "timed out"}
    assert failures(judged(spark, run)) == {FED: 59}


def test_a_doubled_record_is_allowed_only_where_its_batch_was_begun_twice(spark: SparkSession) -> None:
    run = a_faithful_run()
    row = run.sink[20]
    place = json.loads(row["value"])
    again(run.sink, row)
    assert failures(judged(spark, run)) == {DOUBLED: 1}
    partition, offset = str(place["source_partition"]), place["source_offset"]
    its_batch = Repeated(4, {partition: offset}, {partition: offset + 1})
    verdict = judged(spark, run, [its_batch])
    assert failures(verdict) == {}
    assert verdict.repeated == 1
    the_one_before = Repeated(3, {partition: offset - 1}, {partition: offset})
    assert failures(judged(spark, run, [the_one_before])) == {DOUBLED: 1}
    # Three copies of a batch that was begun twice are one too many.
    again(run.sink, row)
    assert failures(judged(spark, run, [its_batch])) == {DOUBLED: 1}
    assert failures(judged(spark, run, [its_batch, its_batch])) == {}


def test_a_record_fed_twice_is_no_fault_of_the_query(spark: SparkSession) -> None:
    run = a_faithful_run()
    again(run.source, run.source[59])
    place = run.source[-1]
    value = json.loads(run.sink[59]["value"]) | {"source_offset": place["offset"]}
    append(
        run.sink,
        place["key"],
        json.dumps(value, separators=(",", ":")).encode(),
        place["partition"],
        place["timestamp_ms"],
    )
    count = json.loads(run.counts[-1]["value"])
    append(run.counts, b"", json.dumps(count | {"records": count["records"] + 1}).encode(), 0, 0)
    assert failures(judged(spark, run)) == {"records doubled in the source topic": 1}


@pytest.mark.parametrize("column", ["with_tax", "amount"])
def test_an_altered_value_is_found(spark: SparkSession, column: str) -> None:
    run = a_faithful_run()
    value = json.loads(run.sink[8]["value"])
    run.sink[8]["value"] = json.dumps(value | {column: value[column] + 1}, separators=(",", ":")).encode()
    assert failures(judged(spark, run)) == {"values other than computed": 1}


def test_altered_keys_and_altered_input_are_found(spark: SparkSession) -> None:
    run = a_faithful_run()
    run.sink[8]["key"] = b"account-99"
    run.source[9]["value"] = run.source[9]["value"].replace(b"...", b"..!", 1)
    assert failures(judged(spark, run)) == {
        "keys other than fed": 1,
        "records in the source topic other than fed": 1,
    }


@pytest.mark.parametrize(
    "value",
    [
        b"hello",
        b"\xff\x00",
        b'{"run":"another","sequence":1,"source_partition":1,"source_offset":0}',
        # It says that it is another record than the one at that place.
        json.dumps({"run": SPEC.run_id, "sequence": 5, "source_partition": 0, "source_offset": 0}).encode(),
    ],
)
def test_an_alien_is_found(spark: SparkSession, value: bytes) -> None:
    run = a_faithful_run()
    append(run.sink, b"k", value, 0, SPEC.start_timestamp_ms)
    assert failures(judged(spark, run)) == {"alien records in the sink topic": 1}


def test_records_out_of_order_in_their_key_are_found(spark: SparkSession) -> None:
    run = a_faithful_run()
    first, second = (row for row in run.sink[:14] if row["key"] == SPEC.key(3))
    first["offset"], second["offset"] = second["offset"], first["offset"]
    assert failures(judged(spark, run)) == {"records out of order in their key": 1}


def test_only_the_newest_count_counts(spark: SparkSession) -> None:
    run = a_faithful_run()
    newest = run.counts[-1]
    value = json.loads(newest["value"])
    newest["value"] = json.dumps(value | {"records": value["records"] - 1}).encode()
    assert failures(judged(spark, run)) == {COUNTED: 20}
    append(run.counts, b"", json.dumps(value).encode(), 0, 0)
    assert failures(judged(spark, run)) == {}
    append(run.counts, b"", json.dumps(value | {"window_start_s": 0}).encode(), 0, 0)
    assert failures(judged(spark, run)) == {"counts of keys and windows that are not there": 1}


def test_an_empty_run_proves_nothing(spark: SparkSession) -> None:
    assert failures(judged(spark, Run())) == {FED: 0, IN_SOURCE: 0, IN_SINK: 0, COUNTED: 0}
