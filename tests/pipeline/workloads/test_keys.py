"""Which key a record has, and where keys belong."""

from __future__ import annotations

import dataclasses
from collections import Counter

import pytest

pytest.importorskip("pyspark", reason="needs the extra: pip install -e '.[spark]'")

from pyspark.sql import SparkSession

from pipeline.load.job import inputs
from pipeline.workloads.keys import murmur2, partition_of
from pipeline.workloads.spec import KeyDistribution, RunSpec

SPEC = RunSpec("t", 20_000, 5, 100, 1000, 2, None, 1_795_000_000_000)


def counts(spark: SparkSession, spec: RunSpec) -> Counter[bytes | None]:
    return Counter(
        None if key is None else bytes(key) for (key,) in inputs(spark, spec).select("key").collect()
    )


def test_zipf_prefers_few_keys_as_its_law_says(spark: SparkSession) -> None:
    spec = dataclasses.replace(SPEC, key_distribution=KeyDistribution.ZIPF)
    found = counts(spark, spec)
    per_producer = spec.keys // spec.producers
    zeta = sum(1 / rank**spec.zipf_theta for rank in range(1, per_producer + 1))
    # The favourite of each of the two producers.
    for producer in range(2):
        share = found[b"key-%d" % producer] / (spec.records / 2)
        assert share == pytest.approx(1 / zeta, rel=0.1)
    assert len(found) > spec.keys / 2


def test_round_robin_takes_each_key_equally_often(spark: SparkSession) -> None:
    found = counts(spark, dataclasses.replace(SPEC, key_distribution=KeyDistribution.ROUND_ROBIN))
    assert set(found.values()) == {20}


def test_records_may_have_no_key(spark: SparkSession) -> None:
    assert set(counts(spark, dataclasses.replace(SPEC, key_distribution=KeyDistribution.NONE))) == {None}


def test_the_tail_deletes_every_key(spark: SparkSession) -> None:
    spec = dataclasses.replace(SPEC, tombstone_tail=SPEC.keys)
    rows = inputs(spark, spec).orderBy("sequence").collect()
    head, tail = rows[: -SPEC.keys], rows[-SPEC.keys :]
    assert all(row["value"] is None for row in tail)
    assert all(row["value"] is not None for row in head)
    assert len({bytes(row["key"]) for row in tail}) == SPEC.keys


def test_a_share_of_the_records_is_tombstones(spark: SparkSession) -> None:
    values = inputs(spark, dataclasses.replace(SPEC, tombstone_share=0.05)).select("value").collect()
    assert sum(value is None for (value,) in values) == pytest.approx(1000, rel=0.15)


def test_a_producer_sends_to_each_topic_in_turn() -> None:
    spec = dataclasses.replace(SPEC, topics=3)
    assert spec.topic_names == ["t-0", "t-1", "t-2"]
    assert [spec.topic_number(sequence) for sequence in (0, 2, 4, 6)] == [0, 1, 2, 0]


def test_producers_share_tasks(spark: SparkSession) -> None:
    spec = dataclasses.replace(SPEC, records=100, producers=10, producers_per_task=5)
    frame = inputs(spark, spec)
    assert frame.rdd.getNumPartitions() == 2
    assert sorted(sequence for (sequence,) in frame.select("sequence").collect()) == list(range(100))


@pytest.mark.parametrize(
    ("key", "hashed"),
    [
        # Of the tests of Apache Kafka's own function; signed.
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"abc", 479470107),
    ],
)
def test_the_hash_is_that_of_kafka(key: bytes, hashed: int) -> None:
    assert murmur2(key) == hashed % (1 << 32)
    assert 0 <= partition_of(key, 7) < 7
