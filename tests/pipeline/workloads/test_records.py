"""Records are a pure function of the run's specification and the sequence number."""

from __future__ import annotations

import dataclasses
import json
import zlib
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra: pip install -e '.[spark]'")

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pipeline.errors import PipelineError
from pipeline.load.job import inputs
from pipeline.workloads.records import value_column
from pipeline.workloads.spec import FORMAT, MIN_RECORD_SIZE_BYTES, RunSpec

SPEC = RunSpec("t", 101, 5, 300, 10, 3, 100.0, 1_795_000_000_000)


def test_each_producer_gets_its_share_in_order_and_owns_its_keys(spark: SparkSession) -> None:
    rows = inputs(spark, SPEC).withColumn("task", F.spark_partition_id()).collect()
    assert sorted(row["sequence"] for row in rows) == list(range(SPEC.records))
    owners: dict[bytes, set[int]] = {}
    for task in range(SPEC.producers):
        sequences = [row["sequence"] for row in rows if row["task"] == task]
        assert sequences == [s for s in range(SPEC.records) if s % SPEC.producers == task]
    for row in rows:
        owners.setdefault(bytes(row["key"]), set()).add(row["task"])
    assert len(owners) > SPEC.producers
    assert all(len(tasks) == 1 for tasks in owners.values())


def test_a_value_is_json_of_the_exact_size_and_its_checksum_is_that_of_the_payload(
    spark: SparkSession,
) -> None:
    for row in inputs(spark, SPEC).collect():
        assert len(row["value"]) == SPEC.record_size_bytes
        value = json.loads(row["value"])
        assert value["sequence"] == row["sequence"]
        assert int(value["crc32"], 16) == zlib.crc32(value["payload"].encode())


@pytest.mark.parametrize("size_bytes", [MIN_RECORD_SIZE_BYTES, 128, 129, 1024, 100_000])
def test_a_value_has_its_size_whatever_the_digits_of_its_sequence(
    spark: SparkSession, size_bytes: int
) -> None:
    spec = dataclasses.replace(SPEC, record_size_bytes=size_bytes, records=10**12 - 1)
    sequences = spark.createDataFrame([(0,), (9,), (10,), (10**12 - 2,)], "sequence bigint")
    values = sequences.select(value_column(spec, F.col("sequence")).alias("value")).collect()
    assert [len(row["value"]) for row in values] == [size_bytes] * 4


def test_another_seed_gives_other_values_and_the_same_seed_the_same(spark: SparkSession) -> None:
    def values(seed: int) -> list[bytes]:
        rows = inputs(spark, dataclasses.replace(SPEC, seed=seed)).collect()
        return [bytes(row["value"]) for row in rows]

    assert values(5) == values(5)
    assert not set(values(5)) & set(values(6))


def test_timestamps_follow_the_intended_send_times(spark: SparkSession) -> None:
    times_ms = {row["sequence"]: row["timestamp_ms"] for row in inputs(spark, SPEC).collect()}
    assert times_ms[0] == SPEC.start_timestamp_ms
    assert times_ms[100] == SPEC.start_timestamp_ms + 1000


def test_a_specification_survives_its_file(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"format": FORMAT, "spec": SPEC.to_json()}))
    assert RunSpec.of_run(tmp_path) == SPEC


def test_a_run_of_another_form_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"spec": {"topic": "t"}}))
    with pytest.raises(PipelineError, match="was not written by `load` or `run` of this version"):
        RunSpec.of_run(tmp_path)


@pytest.mark.parametrize(
    "wrong",
    [
        {"records": 0},
        {"producers": 0},
        {"keys": 2},
        {"record_size_bytes": MIN_RECORD_SIZE_BYTES - 1},
        {"rate_per_s": 0.0},
    ],
)
def test_a_specification_that_cannot_be_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"must|need"):
        dataclasses.replace(SPEC, **wrong)
