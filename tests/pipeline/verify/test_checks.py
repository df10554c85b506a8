"""Each kind of violation is planted into frames that are right otherwise, and must be found by its check."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra: pip install -e '.[spark]'")

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from pipeline.datasource.columns import columns
from pipeline.load.job import inputs
from pipeline.load.producer_task import DELIVERY_SCHEMA_SQL
from pipeline.verify.checks import FOUND, Circumstances, judge, run_checks
from pipeline.verify.results import CheckResult, passed
from pipeline.workloads.keys import partition_of
from pipeline.workloads.records import headers_of
from pipeline.workloads.spec import RunSpec

SPEC = RunSpec(
    topic="t",
    records=60,
    seed=3,
    record_size_bytes=120,
    keys=8,
    producers=2,
    rate_per_s=1000.0,
    start_timestamp_ms=1_795_000_000_000,
)
PARTITIONS = 3
GIVEN = Circumstances(PARTITIONS)

Row = dict[str, Any]
Log = list[Row]
"""Records as read, in the order of reading."""
Deliveries = list[Row]


@pytest.fixture(scope="module")
def sent(spark: SparkSession) -> list[Row]:
    """What a load of SPEC sends, by sequence."""
    rows = inputs(spark, SPEC).withColumn("timestamp", F.timestamp_millis("timestamp_ms")).collect()
    return sorted((row.asDict() for row in rows), key=lambda row: row["sequence"])


def a_faithful_cluster(sent: list[Row]) -> tuple[Log, Deliveries]:
    """The log of a cluster that kept everything, and the acknowledgements it gave."""
    ends = [0] * PARTITIONS
    log, deliveries = [], []
    for row in sent:
        partition = partition_of(bytes(row["key"]), PARTITIONS)
        offset = ends[partition]
        ends[partition] += 1
        headers = [{"key": name, "value": value} for name, value in headers_of(SPEC, row["sequence"])]
        record = {name: row[name] for name in ("key", "value", "timestamp")}
        log.append(
            record
            | {"topic": "t", "partition": partition, "offset": offset, "timestampType": 0, "headers": headers}
        )
        deliveries.append(
            {"sequence": row["sequence"], "topic": "t", "partition": partition, "offset": offset}
        )
    log.sort(key=lambda record: (record["partition"], record["offset"]))
    return log, deliveries


def frame(spark: SparkSession, rows: list[Row], schema: str) -> DataFrame:
    parsed = StructType.fromDDL(schema)
    assert isinstance(parsed, StructType)
    names = parsed.names
    return spark.createDataFrame([tuple(row.get(name) for name in names) for row in rows], schema)


def check(
    spark: SparkSession, log: Log, deliveries: Deliveries, given: Circumstances = GIVEN, spec: RunSpec = SPEC
) -> dict[str, CheckResult]:
    judged = judge(frame(spark, log, columns(includes_headers=True).simpleString()), spec).cache()
    results = run_checks(judged, frame(spark, deliveries, DELIVERY_SCHEMA_SQL), spec, given)
    judged.unpersist()
    return {result.name: result for result in results}


def failures(results: dict[str, CheckResult]) -> dict[str, int]:
    return {name: result.actual for name, result in results.items() if result.status == "FAIL"}


def test_a_faithful_cluster_passes_every_check(spark: SparkSession, sent: list[Row]) -> None:
    results = check(spark, *a_faithful_cluster(sent))
    assert failures(results) == {}
    assert passed(list(results.values()))
    assert results[FOUND].actual == SPEC.records
    assert len(results) == 14


def sequence_header(record: Row) -> Row:
    header: Row = next(header for header in record["headers"] if header["key"] == "sequence")
    return header


def lose_an_acknowledged_record(log: Log, deliveries: Deliveries) -> None:
    lost = log.pop()
    assert lost["offset"] > 0, "the last of its partition, so that no hole shows either"


def replace_an_acknowledged_record(log: Log, deliveries: Deliveries) -> None:
    """Two records changed places after they were acknowledged: as a cluster with two leaders would do."""
    first, second = next((a, b) for a, b in pairwise(log) if a["key"] != b["key"])
    at = log.index(first)
    first["offset"], second["offset"] = second["offset"], first["offset"]
    log[at], log[at + 1] = second, first


def append_a_record_twice(log: Log, deliveries: Deliveries) -> None:
    last = log[-1]
    log.append(last | {"offset": last["offset"] + 1})


def let_a_stranger_write(log: Log, deliveries: Deliveries) -> None:
    last = log[-1]
    value = b'{"crc32":"00000000","payload":""}'
    log.append(last | {"offset": last["offset"] + 1, "headers": None, "value": value})


def let_another_run_write(log: Log, deliveries: Deliveries) -> None:
    last = log[-1]
    headers = [{"key": "run", "value": b"4-1"}, *last["headers"][1:]]
    log.append(last | {"offset": last["offset"] + 1, "headers": headers})


def swap_two_of_a_key(log: Log, deliveries: Deliveries) -> None:
    """The records trade places in the log, and the acknowledgements say so: only the order is wrong."""
    key = log[0]["key"]
    one, two = [index for index, record in enumerate(log) if record["key"] == key][:2]
    log[one]["offset"], log[two]["offset"] = log[two]["offset"], log[one]["offset"]
    for delivery in deliveries:
        for index in (one, two):
            if delivery["sequence"] == int(sequence_header(log[index])["value"]):
                delivery["offset"] = log[index]["offset"]
    log[one], log[two] = log[two], log[one]


def scatter_a_key(log: Log, deliveries: Deliveries) -> None:
    """The last record of partition 0 went to the end of the last partition."""
    moved = max((record for record in log if record["partition"] == 0), key=lambda record: record["offset"])
    log.remove(moved)
    last = log[-1]
    moved["partition"], moved["offset"] = last["partition"], last["offset"] + 1
    log.append(moved)
    delivery = next(d for d in deliveries if d["sequence"] == int(sequence_header(moved)["value"]))
    delivery["partition"], delivery["offset"] = moved["partition"], moved["offset"]


def deliver_offsets_backwards(log: Log, deliveries: Deliveries) -> None:
    """The log is right, but a reader is handed two records in the wrong order."""
    log[0], log[1] = log[1], log[0]


def flip_a_payload_byte(log: Log, deliveries: Deliveries) -> None:
    value = bytearray(log[7]["value"])
    value[-5] = ord("0") if value[-5] != ord("0") else ord("1")
    log[7]["value"] = bytes(value)


def substitute_a_whole_value(log: Log, deliveries: Deliveries) -> None:
    """Intact in itself, but it belongs to another record."""
    log[7]["value"] = log[8]["value"]


def drop_a_value(log: Log, deliveries: Deliveries) -> None:
    log[7]["value"] = None


def route_a_key_otherwise(log: Log, deliveries: Deliveries) -> None:
    """All records of a key are on the partition behind theirs, and the acknowledgements say so."""
    key = log[0]["key"]
    moved = [record for record in log if record["key"] == key]
    for record in moved:
        log.remove(record)
    partition = (moved[0]["partition"] + 1) % PARTITIONS
    at = max(record["offset"] for record in log if record["partition"] == partition)
    for offset, record in enumerate(moved, at + 1):
        record["partition"], record["offset"] = partition, offset
        delivery = deliveries[int(sequence_header(record)["value"])]
        delivery["partition"], delivery["offset"] = partition, offset
    log.extend(moved)
    log.sort(key=lambda record: (record["partition"], record["offset"]))


def put_a_record_into_another_topic(log: Log, deliveries: Deliveries) -> None:
    last = log[-1]
    deliveries[int(sequence_header(last)["value"])]["topic"] = last["topic"] = "other"


def change_a_key(log: Log, deliveries: Deliveries) -> None:
    log[7]["key"] = b"key-none"


def reverse_headers(log: Log, deliveries: Deliveries) -> None:
    log[7]["headers"] = log[7]["headers"][::-1]


def shift_a_timestamp(log: Log, deliveries: Deliveries) -> None:
    log[7]["timestamp"] += timedelta(milliseconds=1)


def acknowledge_nothing(log: Log, deliveries: Deliveries) -> None:
    for delivery in deliveries:
        delivery["error"] = "timed out"


@pytest.mark.parametrize(
    ("plant", "expected"),
    [
        (
            lose_an_acknowledged_record,
            {FOUND: SPEC.records - 1, "acknowledged elsewhere than read": 1},
        ),
        (replace_an_acknowledged_record, {"acknowledged elsewhere than read": 2}),
        (append_a_record_twice, {"duplicate records": 1, "records out of order in their key": 1}),
        (let_a_stranger_write, {"alien records": 1}),
        (let_another_run_write, {"alien records": 1}),
        (swap_two_of_a_key, {"records out of order in their key": 1}),
        (scatter_a_key, {"keys on more than one partition": 1}),
        (route_a_key_otherwise, {"keys on another partition than their hash says": 1}),
        (put_a_record_into_another_topic, {"records in another topic than sent": 1}),
        (deliver_offsets_backwards, {"offsets not above the one before": 1}),
        (
            flip_a_payload_byte,
            {"payloads that miss their checksum": 1, "values other than sent": 1},
        ),
        (substitute_a_whole_value, {"values other than sent": 1}),
        (drop_a_value, {"values other than sent": 1}),
        (change_a_key, {"keys other than sent": 1}),
        (reverse_headers, {"headers other than sent": 1}),
        (shift_a_timestamp, {"timestamps other than sent": 1}),
        (acknowledge_nothing, {FOUND: 0}),
    ],
)
def test_a_planted_violation_is_found(
    spark: SparkSession,
    sent: list[Row],
    plant: Callable[[Log, Deliveries], None],
    expected: dict[str, int],
) -> None:
    log, deliveries = a_faithful_cluster(sent)
    plant(log, deliveries)
    results = check(spark, log, deliveries)
    assert failures(results) == expected
    assert not passed(list(results.values()))
    for name in expected:
        if plant is not acknowledge_nothing:
            assert results[name].sample, "the report names offenders"
            json.dumps(results[name].to_json())


def test_a_record_that_was_never_acknowledged_may_be_there_or_not(
    spark: SparkSession, sent: list[Row]
) -> None:
    log, deliveries = a_faithful_cluster(sent)
    present, absent = log[-2], log.pop()
    for record in (present, absent):
        deliveries[int(sequence_header(record)["value"])]["error"] = "timed out"
    assert failures(check(spark, log, deliveries)) == {}


def test_an_acknowledgement_without_an_offset_claims_no_place(spark: SparkSession, sent: list[Row]) -> None:
    log, deliveries = a_faithful_cluster(sent)
    deliveries[5]["offset"] = -1001
    assert failures(check(spark, log, deliveries)) == {}


def test_a_header_that_occurs_twice_makes_an_alien_and_stops_nothing(
    spark: SparkSession, sent: list[Row]
) -> None:
    log, deliveries = a_faithful_cluster(sent)
    log[-1]["headers"] = [*log[-1]["headers"], sequence_header(log[-1])]
    results = check(spark, log, deliveries)
    assert failures(results)["alien records"] == 1
    assert failures(results)[FOUND] == SPEC.records - 1
