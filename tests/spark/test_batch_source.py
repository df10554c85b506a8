"""Batch reads: which topics, from where to where, cut into how many pieces."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from tests.spark.options import at, second
from tests.spark.target import Target, now_ms, numbers

if TYPE_CHECKING:
    from tests.spark.reading import Reader

pytestmark = pytest.mark.slow


@pytest.fixture
def ten_and_five(target: Target, name: str) -> str:
    """Two partitions: v0 to v9 in the first, w0 to w4 in the second."""
    target.create(name, 2)
    target.write(name, numbers(0, 10))
    target.write(name, numbers(0, 5, "w"), partition=1)
    return name


# -- which topics --------------------------------------------------------------------------------------------


def test_subscribe_to_two_topics(target: Target, reader: Reader, name: str) -> None:
    for topic, count in ((f"{name}-a", 3), (f"{name}-b", 4)):
        target.create(topic)
        target.write(topic, numbers(0, count))
    rows = reader.rows(subscribe=f"{name}-a,{name}-b")
    assert [(row.topic, row.offset) for row in rows] == [
        *((f"{name}-a", offset) for offset in range(3)),
        *((f"{name}-b", offset) for offset in range(4)),
    ]


def test_subscribe_by_pattern(target: Target, reader: Reader, name: str) -> None:
    for topic in (f"{name}-a", f"{name}-b", f"other-{name}"):
        target.create(topic)
        target.write(topic, numbers(0, 2))
    rows = reader.rows(subscribePattern=f"{re.escape(name)}-.")
    assert [(row.topic, row.offset) for row in rows] == [
        (topic, offset) for topic in (f"{name}-a", f"{name}-b") for offset in range(2)
    ]


def test_assign_one_of_two_partitions(reader: Reader, ten_and_five: str) -> None:
    assert reader.values(assign=json.dumps({ten_and_five: [1]})) == numbers(0, 5, "w")


def test_a_topic_that_does_not_exist(reader: Reader, name: str) -> None:
    with pytest.raises(Exception, match=r"(?i)unknown.?topic|does not (host|exist)"):
        reader.rows(subscribe=name)


# -- columns -------------------------------------------------------------------------------------------------


def test_every_column(target: Target, reader: Reader, name: str) -> None:
    target.create(name, 2)
    target.write(
        name, ["value"], partition=1, key="key", timestamps_ms=[1_700_000_000_123],
        headers=[("a", b"1"), ("a", b"2"), ("none", None)],
    )  # fmt: skip
    target.write(name, [None], partition=1, timestamps_ms=[1_700_000_000_124])
    first, second = reader.rows(subscribe=name, includeHeaders="true")
    assert (bytes(first.key), bytes(first.value)) == (b"key", b"value")
    assert (first.topic, first.partition, first.offset, first.timestampType) == (name, 1, 0, 0)
    assert [(header.key, header.value) for header in first.headers] == [
        ("a", b"1"), ("a", b"2"), ("none", None),
    ]  # fmt: skip
    assert (second.key, second.value, second.offset, second.headers) == (None, None, 1, None)
    exact = reader.frame(subscribe=name).selectExpr("unix_millis(timestamp) AS ms").sort("ms").collect()
    assert [row.ms for row in exact] == [1_700_000_000_123, 1_700_000_000_124]


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_batches(target: Target, reader: Reader, name: str, codec: str) -> None:
    target.create(name)
    producer = target.producer(compression_type=codec, linger_ms=50)
    target.write(name, numbers(0, 500), producer=producer)
    assert reader.values(subscribe=name) == numbers(0, 500)


# -- from where to where -------------------------------------------------------------------------------------


def test_all_that_there_is(reader: Reader, ten_and_five: str, offset_fetching: str) -> None:
    for bounds in ({}, {"startingOffsets": "earliest", "endingOffsets": "latest"}):
        values = reader.values(subscribe=ten_and_five, minPartitions="3", **bounds)
        assert values == [*numbers(0, 10), *numbers(0, 5, "w")]


@pytest.mark.parametrize(
    ("start", "end", "wanted"),
    [
        ({"p0": 3, "p1": 1}, {"p0": 7, "p1": 2}, [*numbers(3, 7), *numbers(1, 2, "w")]),
        ({"p0": -2, "p1": 4}, {"p0": 2, "p1": -1}, [*numbers(0, 2), *numbers(4, 5, "w")]),
        ({"p0": 10, "p1": 5}, {"p0": -1, "p1": -1}, []),
        ({"p0": 5, "p1": 5}, {"p0": 5, "p1": 5}, []),
    ],
    ids=["numbers", "earliest-and-latest", "at-the-end", "empty-range"],
)
def test_offsets_in_json(
    reader: Reader, ten_and_five: str, start: dict[str, int], end: dict[str, int], wanted: list[str]
) -> None:
    bounds = {"startingOffsets": at(ten_and_five, **start), "endingOffsets": at(ten_and_five, **end)}
    assert reader.values(subscribe=ten_and_five, **bounds) == wanted


def test_an_end_behind_the_log_fails(reader: Reader, ten_and_five: str) -> None:
    end = at(ten_and_five, p0=11, p1=5)
    with pytest.raises(Exception, match=r"(?i)out of range|missing|data.?loss|Cannot fetch"):
        reader.values(subscribe=ten_and_five, endingOffsets=end, **{"kafkaConsumer.pollTimeoutMs": "2000"})


# -- by timestamp --------------------------------------------------------------------------------------------


@pytest.fixture
def stamped(target: Target, name: str) -> str:
    """Ten records in each of two partitions, one a second; those of the second partition begin at second 5."""
    target.create(name, 2)
    target.write(name, numbers(0, 10), timestamps_ms=[second(n) for n in range(10)])
    target.write(name, numbers(0, 10, "w"), partition=1, timestamps_ms=[second(n + 5) for n in range(10)])
    return name


def test_timestamps_for_all_partitions(reader: Reader, stamped: str, offset_fetching: str) -> None:
    bounds = {"startingTimestamp": str(second(4)), "endingTimestamp": str(second(7))}
    assert reader.values(subscribe=stamped, **bounds) == [*numbers(4, 7), *numbers(0, 2, "w")]
    bounds = {"startingTimestamp": str(second(8) + 1)}
    assert reader.values(subscribe=stamped, **bounds) == [*numbers(9, 10), *numbers(4, 10, "w")]


def test_timestamps_by_partition(reader: Reader, stamped: str) -> None:
    bounds = {
        "startingOffsetsByTimestamp": at(stamped, p0=second(6), p1=second(6)),
        "endingOffsetsByTimestamp": at(stamped, p0=second(8), p1=second(100)),
    }
    # Where nothing is as late as the ending timestamp, the end of the partition counts.
    assert reader.values(subscribe=stamped, **bounds) == [*numbers(6, 8), *numbers(1, 10, "w")]


def test_a_starting_timestamp_without_a_match(reader: Reader, stamped: str) -> None:
    """Trap 8: the first partition ends at second 9, the second has records from 12 on."""
    late = {"startingTimestamp": str(second(12))}
    with pytest.raises(Exception, match=r"(?i)no offset matched|KAFKA_(START_OFFSET|NO_OFFSET)"):
        reader.values(subscribe=stamped, **late)
    with pytest.raises(Exception, match=r"(?i)no offset matched|KAFKA_(START_OFFSET|NO_OFFSET)"):
        reader.values(subscribe=stamped, startingOffsetsByTimestampStrategy="error", **late)
    latest = {"startingOffsetsByTimestampStrategy": "latest", **late}
    assert reader.values(subscribe=stamped, **latest) == numbers(7, 10, "w")


def test_timestamps_out_of_order(target: Target, reader: Reader, name: str) -> None:
    """Trap 8: the first offset whose timestamp is not earlier, whatever comes behind it."""
    target.create(name)
    for number, at_second in enumerate((5, 9, 3, 7, 1, 8)):
        target.write(name, numbers(number, number + 1), timestamps_ms=[second(at_second)])
    for at_second, wanted in ((1, 0), (5, 0), (6, 1), (9, 1)):
        values = reader.values(subscribe=name, startingTimestamp=str(second(at_second)))
        assert values == numbers(wanted, 6)
    bounds = {"startingTimestamp": str(second(0)), "endingTimestamp": str(second(8))}
    assert reader.values(subscribe=name, **bounds) == numbers(0, 1)


def test_the_brokers_own_timestamps(target: Target, reader: Reader, name: str) -> None:
    """Trap 8, LogAppendTime: the timestamp of the producer counts for nothing."""
    target.create(name, message_timestamp_type="LogAppendTime")
    before = now_ms()
    target.write(name, numbers(0, 3), timestamps_ms=[second(0)] * 3)
    after = now_ms()
    rows = reader.frame(subscribe=name).selectExpr("timestampType", "unix_millis(timestamp) AS ms").collect()
    assert [row.timestampType for row in rows] == [1, 1, 1]
    assert all(before <= row.ms <= after for row in rows)
    assert reader.values(subscribe=name, startingTimestamp=str(before)) == numbers(0, 3)
    latest = {"startingOffsetsByTimestampStrategy": "latest", "startingTimestamp": str(after + 3_600_000)}
    assert reader.values(subscribe=name, **latest) == []


# -- cut into pieces -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "pieces"),
    [
        ({}, 2),
        ({"minPartitions": "6"}, 6),
        ({"minPartitions": "1"}, 2),
        ({"maxRecordsPerPartition": "4"}, 2),
        ({"maxRecordsPerPartition": "4", "minPartitions": "3"}, 5),
    ],
    ids=["as-the-topic", "min-6", "min-1", "max-4-records-is-ignored", "max-4-records-of-min-3"],
)
def test_pieces_of_a_read(reader: Reader, ten_and_five: str, options: dict[str, str], pieces: int) -> None:
    """Ten and five records: pieces of at most four make three and two.

    The connector minds maxRecordsPerPartition of a batch only where minPartitions makes it look up the bounds.
    """
    frame = reader.frame(subscribe=ten_and_five, **options)
    assert frame.rdd.getNumPartitions() == pieces
    assert reader.values(subscribe=ten_and_five, **options) == [*numbers(0, 10), *numbers(0, 5, "w")]


def test_small_polls(target: Target, reader: Reader, name: str) -> None:
    """Each poll is followed by two lookups of the partition's bounds."""
    target.create(name)
    target.write(name, numbers(0, 300))
    assert reader.values(subscribe=name, **{"kafka.max.poll.records": "7"}) == numbers(0, 300)


@pytest.mark.parametrize("option", ["groupIdPrefix", "kafka.group.id"])
def test_a_group_by_name(reader: Reader, ten_and_five: str, option: str, offset_fetching: str) -> None:
    options = {option: f"group-of-{ten_and_five}", "minPartitions": "4"}
    assert len(reader.values(subscribe=ten_and_five, **options)) == 15
