"""What compaction may take away and what not: each violation is planted into a log that was compacted rightly."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

pytest.importorskip("pyspark", reason="needs the extra: pip install -e '.[spark]'")

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pipeline.load.job import inputs
from pipeline.run_files import ABORTED
from pipeline.verify.checks import ABORTED_SERVED, CAME_BACK, FOUND, FOUND_NEWEST, Circumstances
from tests.pipeline.verify.test_checks import (
    PARTITIONS,
    SPEC,
    Deliveries,
    Log,
    Row,
    a_faithful_cluster,
    check,
    failures,
    sequence_header,
)

COMPACTED = dataclasses.replace(SPEC, tombstone_tail=4)
GIVEN = Circumstances(PARTITIONS, is_compacted=True)
KEYS = 8


@pytest.fixture(scope="module")
def sent(spark: SparkSession) -> list[Row]:
    rows = inputs(spark, COMPACTED).withColumn("timestamp", F.timestamp_millis("timestamp_ms")).collect()
    return sorted((row.asDict() for row in rows), key=lambda row: row["sequence"])


def compacted(sent: list[Row], *, keeps_tombstones: bool) -> tuple[Log, Deliveries]:
    """A log of which only the newest record of each key is left."""
    log, deliveries = a_faithful_cluster(sent)
    newest = {record["key"]: record["offset"] for record in log}
    left = [record for record in log if newest[record["key"]] == record["offset"]]
    return [record for record in left if keeps_tombstones or record["value"] is not None], deliveries


def of_key(sent: list[Row], key: bytes) -> list[Row]:
    """Its records as they were in the whole log."""
    return [record for record in a_faithful_cluster(sent)[0] if record["key"] == key]


def a_deleted_key(sent: list[Row]) -> bytes:
    return bytes(sent[-1]["key"])


def a_kept_key(sent: list[Row]) -> bytes:
    deleted = {row["key"] for row in sent if row["value"] is None}
    return next(bytes(row["key"]) for row in sent if row["key"] not in deleted)


@pytest.mark.parametrize("keeps_tombstones", [True, False])
def test_what_newer_records_replaced_may_be_gone_and_so_may_tombstones(
    spark: SparkSession, sent: list[Row], keeps_tombstones: bool
) -> None:
    log, deliveries = compacted(sent, keeps_tombstones=keeps_tombstones)
    assert len(log) == (KEYS if keeps_tombstones else KEYS - 4)
    results = check(spark, log, deliveries, GIVEN, COMPACTED)
    assert failures(results) == {}
    assert results[FOUND_NEWEST].actual == KEYS


def test_a_log_that_is_not_compacted_yet_passes_as_well(spark: SparkSession, sent: list[Row]) -> None:
    assert failures(check(spark, *a_faithful_cluster(sent), GIVEN, COMPACTED)) == {}


def lose_a_newest_value(log: Log, sent: list[Row]) -> None:
    log.remove(next(record for record in log if record["key"] == a_kept_key(sent)))


def keep_an_older_value_instead(log: Log, sent: list[Row]) -> None:
    lose_a_newest_value(log, sent)
    log.append(of_key(sent, a_kept_key(sent))[0])


def bring_a_deleted_key_back(log: Log, sent: list[Row]) -> None:
    log.append(of_key(sent, a_deleted_key(sent))[-2])


def move_a_record(log: Log, sent: list[Row]) -> None:
    next(record for record in log if record["key"] == a_kept_key(sent))["offset"] += 1000


@pytest.mark.parametrize(
    ("plant", "expected"),
    [
        (lose_a_newest_value, {FOUND_NEWEST: KEYS - 1}),
        (keep_an_older_value_instead, {FOUND_NEWEST: KEYS - 1}),
        (bring_a_deleted_key_back, {CAME_BACK: 1}),
        (move_a_record, {"acknowledged elsewhere than read": 1}),
    ],
)
def test_a_planted_violation_is_found(
    spark: SparkSession,
    sent: list[Row],
    plant: Callable[[Log, list[Row]], None],
    expected: dict[str, int],
) -> None:
    log, deliveries = compacted(sent, keeps_tombstones=False)
    plant(log, sent)
    log.sort(key=lambda record: (record["partition"], record["offset"]))
    assert failures(check(spark, log, deliveries, GIVEN, COMPACTED)) == expected


def test_a_key_is_not_judged_that_an_unacknowledged_tombstone_may_have_deleted(
    spark: SparkSession, sent: list[Row]
) -> None:
    log, deliveries = compacted(sent, keeps_tombstones=False)
    deliveries[sent[-1]["sequence"]]["error"] = "_MSG_TIMED_OUT"
    results = check(spark, log, deliveries, GIVEN, COMPACTED)
    assert failures(results) == {}
    assert results[FOUND_NEWEST].expected == KEYS - 1


def test_a_record_of_an_aborted_transaction_must_not_be_served(spark: SparkSession, sent: list[Row]) -> None:
    spec = dataclasses.replace(COMPACTED, transaction_records=5, abort_share=0.1)
    log, deliveries = a_faithful_cluster(sent)
    served = deliveries[int(sequence_header(log[0])["value"])]
    served |= {"error": ABORTED, "partition": -1, "offset": -1}
    results = check(spark, log, deliveries, Circumstances(PARTITIONS), spec)
    assert failures(results) == {ABORTED_SERVED: 1}
    assert results[FOUND].expected == len(sent) - 1
    uncommitted = Circumstances(PARTITIONS, is_committed_only=False)
    assert failures(check(spark, log, deliveries, uncommitted, spec)) == {}
