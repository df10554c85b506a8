"""Planning and reading against a real broker, without Spark: every count is exact."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs the extra: pip install -e '.[spark]'")

from confluent_kafka import Producer

from pipeline.datasource.errors import ClusterUnavailable, DataLoss, InvalidOption
from pipeline.datasource.offsets import Offsets, Range
from pipeline.datasource.options import ReadOptions
from pipeline.datasource.planning import Planner
from tests.integration.harness import BrokerCluster, eventually
from tests.integration.tables import LIMIT_S, NODE, SETTINGS, write
from tests.pipeline.datasource.topics import Row, Topics, at, rows

COMMITTED = {"kafka.isolation.level": "read_committed"}


def test_a_batch_reads_what_lies_between_its_offsets_in_order(topics: Topics) -> None:
    topic = topics.create("between", 2)
    topics.produce(topic, range(50), 0)
    topics.produce(topic, range(100, 130), 1)
    everything = topics.read(topic)
    assert [row["value"] for row in everything] == [b"%d" % n for n in (*range(50), *range(100, 130))]
    assert [row["offset"] for row in everything] == [*range(50), *range(30)]
    some = topics.read(
        topic,
        startingOffsets=json.dumps({topic: {"0": 40, "1": -2}}),
        endingOffsets=json.dumps({topic: {"0": -1, "1": 3}}),
    )
    assert [row["value"] for row in some] == [b"%d" % n for n in (*range(40, 50), 100, 101, 102)]
    with pytest.raises(InvalidOption, match=f"does not name {topic}-1"):
        topics.read(topic, startingOffsets=json.dumps({topic: {"0": 40}}))


def test_timestamps_bound_a_batch_and_a_strategy_says_what_if_none_matches(topics: Topics) -> None:
    topic = topics.create("times")
    for second in range(1, 6):
        topics.produce(topic, [second], timestamp_ms=1_000_000 * second)
    found = topics.read(topic, startingTimestamp="2000000", endingTimestamp="3000001")
    assert [row["value"] for row in found] == [b"2", b"3"]
    assert [row["timestamp"].timestamp() for row in found] == [2000.0, 3000.0]
    by_partition = {"startingOffsetsByTimestamp": json.dumps({topic: {"0": 9_000_000}})}
    with pytest.raises(InvalidOption, match=r"no record is as new .* times-0 \(9000000\)"):
        topics.read(topic, **by_partition)
    assert topics.read(topic, **by_partition, startingOffsetsByTimestampStrategy="latest") == []


def test_a_pattern_and_an_assignment_choose(topics: Topics) -> None:
    for name in ("red-a", "red-b", "blue"):
        topics.produce(topics.create(name, 2), [name], 1)
    servers = {"bootstrap.servers": topics.bootstrap}

    def read(**options: str) -> list[tuple[str, int]]:
        parsed = ReadOptions.parse(servers | options)
        planner = Planner(parsed)
        found = rows(parsed, planner.ranges(planner.start(-2), planner.end()))
        return [(row["topic"], row["partition"]) for row in found]

    assert read(subscribePattern="red-.*") == [("red-a", 1), ("red-b", 1)]
    assert read(assign=json.dumps({"red-a": [0], "blue": [1]})) == [("blue", 1)]
    with pytest.raises(ClusterUnavailable, match="does not have blue-7"):
        read(assign=json.dumps({"blue": [7]}))
    with pytest.raises(ClusterUnavailable, match="does not have green"):
        read(subscribe="blue,green")


def test_tails_without_a_record_end(topics: Topics) -> None:
    """Markers, an aborted transaction, and nothing but those: the position moves past them, and no task hangs."""
    topic = topics.create("tails", 2)
    topics.produce(topic, range(10), 0, abort=False)
    topics.produce(topic, range(10, 15), 0, abort=True)
    topics.produce(topic, range(5), 1, abort=True)
    assert (topics.latest(topic, 0), topics.latest(topic, 1)) == (17, 6)
    assert len(topics.read(topic, **COMMITTED)) == 10
    assert len(topics.read(topic)) == 20


def test_an_open_transaction_is_not_read_ahead_of(topics: Topics) -> None:
    topic = topics.create("open")
    topics.produce(topic, range(3))
    producer = Producer({"bootstrap.servers": topics.bootstrap, "transactional.id": "open", "log_level": 2})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, "undecided")
    assert producer.flush(30) == 0
    topics.produce(topic, ["later"])
    assert [row["value"] for row in topics.read(topic, **COMMITTED)] == [b"0", b"1", b"2"]
    producer.commit_transaction(30)
    assert len(topics.read(topic, **COMMITTED)) == 5


def test_a_tail_that_compaction_emptied_ends(tmp_path: Path) -> None:
    cluster = BrokerCluster(tmp_path, size=1, **NODE)
    try:
        cluster.start()
        topics = Topics(cluster.bootstrap)
        topic = topics.create("table", 1, **{**SETTINGS, "delete_retention_ms": "0"})
        write(cluster, *((b"k%d" % key, value) for value in (b"old", b"new", None) for key in range(20)))
        end = Offsets({(topic, 0): topics.latest(topic)})
        options, planner = topics.planner(topic)

        def read() -> list[Row]:
            return rows(options, planner.ranges(Offsets({(topic, 0): 0}), end))

        # Not one record is left between the offsets, and yet each of these reads ends.
        eventually(lambda: not read() or None, "all keys are gone", LIMIT_S)
        assert topics.earliest(topic) == 0
        assert topics.latest(topic) == 60
    finally:
        cluster.close()


def test_deleted_records_fail_a_query_or_are_passed_over(
    topics: Topics, caplog: pytest.LogCaptureFixture
) -> None:
    topic = topics.create("purged")
    topics.produce(topic, range(10))
    topics.delete_records(topic, 0, 6)
    options, planner = topics.planner(topic)
    with pytest.raises(DataLoss, match="purged-0 offsets 2 to 5"):
        planner.ranges(at(topic, 2), at(topic, 10))
    # Deleted after the driver has looked: the task finds out.
    with pytest.raises(DataLoss, match="purged-0 offsets 3 to 5"):
        rows(options, [Range(topic, 0, 3, 10)])
    options, planner = topics.planner(topic, failOnDataLoss="false")
    logging.getLogger("varve.spark").propagate = True
    assert planner.ranges(at(topic, 2), at(topic, 10)) == [Range(topic, 0, 6, 10)]
    assert [row["offset"] for row in rows(options, [Range(topic, 0, 3, 10)])] == [6, 7, 8, 9]
    assert rows(options, [Range(topic, 0, 3, 5)]) == []


def test_a_trigger_takes_its_share_of_each_partition_and_new_partitions_from_their_beginning(
    topics: Topics,
) -> None:
    topic = topics.create("growing", 2)
    topics.produce(topic, range(90), 0)
    topics.produce(topic, range(10), 1)
    options, planner = topics.planner(topic)
    first = planner.next_end(at(topic, 0, 0), 20, None)
    assert first.next == {(topic, 0): 18, (topic, 1): 2}
    topics.add_partitions(topic, 3)
    topics.produce(topic, range(7), 2)
    everything = planner.next_end(first, None, None)
    assert everything.next == {(topic, 0): 90, (topic, 1): 10, (topic, 2): 7}
    assert len(rows(options, planner.ranges(first, everything))) == 107 - 20
    # Available now: nothing past what was there when it began.
    topics.produce(topic, range(5), 2)
    assert planner.next_end(first, None, everything).next == everything.next


def test_a_topic_created_again_is_data_loss_even_if_it_has_grown_past_the_old_offsets(topics: Topics) -> None:
    topic = topics.create("again")
    topics.produce(topic, range(5))
    _, planner = topics.planner(topic)
    start = planner.start(-1)
    assert start.next == {(topic, 0): 5}
    topics.delete(topic)
    eventually(lambda: not planner.view.partitions().places or None, "the deletion")
    with pytest.raises(DataLoss, match="again-0 at offset 5"):
        planner.next_end(start, None, None)
    topics.create(topic)
    topics.produce(topic, range(100, 108))
    with pytest.raises(DataLoss, match="topic again was deleted and created again"):
        planner.next_end(start, None, None)
    options, planner = topics.planner(topic, failOnDataLoss="false")
    end = planner.next_end(start, None, None)
    assert [row["value"] for row in rows(options, planner.ranges(start, end))] == [
        b"%d" % n for n in range(100, 108)
    ]


def test_a_log_that_ends_before_what_was_read_is_data_loss(topics: Topics) -> None:
    topic = topics.create("shorter")
    topics.produce(topic, range(5))
    _, planner = topics.planner(topic)
    with pytest.raises(DataLoss, match="shorter-0 ends at offset 5, but has been read up to 9"):
        planner.next_end(at(topic, 9), None, None)


def test_headers_and_nulls_arrive_as_they_were_sent(topics: Topics) -> None:
    topic = topics.create("headers")
    producer = Producer({"bootstrap.servers": topics.bootstrap, "log_level": 2})
    producer.produce(topic, None, b"k", headers=[("a", b"1"), ("a", None), ("b", b"\x00")])
    producer.produce(topic, b"v", None)
    assert producer.flush(30) == 0
    with_headers, without = topics.read(topic, includeHeaders="true")
    assert (with_headers["key"], with_headers["value"], with_headers["timestampType"]) == (b"k", None, 0)
    assert [(each["key"], each["value"]) for each in with_headers["headers"]] == [
        ("a", b"1"), ("a", None), ("b", b"\x00"),
    ]  # fmt: skip
    assert (without["key"], without["value"], without["headers"]) == (None, b"v", None)
