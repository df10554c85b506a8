"""Sending and purging against a real broker, without Spark."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("pyspark", reason="needs the extra: pip install -e '.[spark]'")

import pyarrow as pa
from pyspark.sql.types import ArrayType, DataType, LongType, StringType, StructField, StructType

from pipeline.datasource.errors import DeliveryFailed, InvalidFrame, InvalidOption, ReplayDiffers
from pipeline.datasource.exactly_once import TaskOfBatch, send_exactly_once
from pipeline.datasource.offsets import Offsets
from pipeline.datasource.options import WriteOptions
from pipeline.datasource.purge import Purge
from pipeline.datasource.rows import check_schema
from pipeline.datasource.sender import send_at_least_once
from tests.integration.harness import eventually
from tests.pipeline.datasource.topics import Topics, at


def batch(*values: str, **columns: list[object]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"value": list(values), **columns})


def sink(topics: Topics, topic: str | None, **more: str) -> WriteOptions:
    named = {} if topic is None else {"topic": topic}
    return WriteOptions.parse({"bootstrap.servers": topics.bootstrap, **named, **more})


def test_columns_become_parts_of_a_record(topics: Topics) -> None:
    for name in ("here", "there"):
        topics.create(name, 2)
    rows = batch(
        "a", "b",
        key=["k", None], topic=["here", "there"], partition=[1, None],
        headers=[[{"key": "h", "value": b"1"}], None],
    )  # fmt: skip
    assert send_at_least_once(sink(topics, None), iter([rows])) == 2
    (here,) = topics.read("here", includeHeaders="true")
    assert (here["key"], here["value"], here["partition"]) == (b"k", b"a", 1)
    assert here["headers"] == [{"key": "h", "value": b"1"}]
    (there,) = topics.read("there")
    assert (there["key"], there["value"]) == (None, b"b")
    # The option wins over the column.
    assert send_at_least_once(sink(topics, "there"), iter([rows])) == 2
    assert len(topics.read("there")) == 3


def test_a_record_that_the_cluster_refuses_fails_the_task(topics: Topics) -> None:
    topic = topics.create("small", max_message_bytes="1000")
    with pytest.raises(
        DeliveryFailed, match=r"1 records were not acknowledged.*small-0: .*MSG_SIZE_TOO_LARGE"
    ):
        send_at_least_once(sink(topics, topic), iter([batch("x" * 5_000)]))
    nobody = WriteOptions.parse(
        {"bootstrap.servers": "localhost:1", "topic": "t", "kafka.message.timeout.ms": "300"}
    )
    with pytest.raises(DeliveryFailed, match="MSG_TIMED_OUT"):
        send_at_least_once(nobody, iter([batch("x")]))


TEXT, NUMBER = StringType(), LongType()


@pytest.mark.parametrize(
    ("columns", "topic", "message"),
    [
        ({"key": TEXT}, "t", "the column value is missing"),
        ({"value": TEXT}, None, "neither the option topic nor a column topic"),
        ({"value": NUMBER}, "t", "value must be string or binary, not bigint"),
        ({"value": TEXT, "partition": NUMBER}, "t", "partition must be int"),
        ({"value": TEXT, "headers": ArrayType(TEXT)}, "t", "headers must be array<struct"),
    ],
)
def test_a_frame_that_makes_no_records_is_refused(
    columns: dict[str, DataType], topic: str | None, message: str
) -> None:
    schema = StructType([StructField(name, kind) for name, kind in columns.items()])
    with pytest.raises(InvalidFrame, match=message):
        check_schema(schema, topic)


def test_a_batch_that_was_committed_is_not_sent_again(topics: Topics) -> None:
    topic = topics.create("once")
    options = sink(topics, topic, deliverySemantics="exactly-once")
    first, second = TaskOfBatch("q1", 0, 0), TaskOfBatch("q1", 1, 0)
    assert send_exactly_once(options, first, iter([batch("a", "b")])) == 2
    assert send_exactly_once(options, first, iter([batch("a"), batch("b")])) == 2
    assert send_exactly_once(options, second, iter([batch("c")])) == 1
    # Another task and another query have notes of their own.
    assert send_exactly_once(options, TaskOfBatch("q1", 0, 1), iter([batch("d")])) == 1
    assert send_exactly_once(options, TaskOfBatch("q2", 0, 0), iter([batch("e")])) == 1
    assert topics.committed_values(topic) == ["a", "b", "c", "d", "e"]
    with pytest.raises(ReplayDiffers, match=r"records=1 .*, and is run again with records=2"):
        send_exactly_once(options, second, iter([batch("c", "x")]))


def test_as_many_records_of_another_task_are_not_taken_for_a_replay(topics: Topics) -> None:
    topic = topics.create("moved")
    options = sink(topics, topic, deliverySemantics="exactly-once")
    task = TaskOfBatch("q5", 0, 0)
    assert send_exactly_once(options, task, iter([batch("a", "b")])) == 2
    with pytest.raises(ReplayDiffers, match=r"put .repartition\(NUMBER, 'key'\)"):
        send_exactly_once(options, task, iter([batch("a", "c")]))
    # A shuffle may change the order.
    assert send_exactly_once(options, task, iter([batch("b", "a")])) == 2
    assert topics.committed_values(topic) == ["a", "b"]


def test_a_task_that_fails_leaves_nothing_for_readers_of_committed_records(topics: Topics) -> None:
    topic = topics.create("failing")
    options = sink(topics, topic, deliverySemantics="exactly-once")

    def rows() -> Iterator[pa.RecordBatch]:
        yield batch("a", "b")
        raise ValueError("the query's own error")

    task = TaskOfBatch("q3", 0, 0)
    with pytest.raises(ValueError, match="own error"):
        send_exactly_once(options, task, rows())
    assert topics.committed_values(topic) == []
    assert send_exactly_once(options, task, iter([batch("a", "b")])) == 2
    assert topics.committed_values(topic) == ["a", "b"]


def test_an_attempt_that_is_overtaken_cannot_commit(topics: Topics) -> None:
    topic = topics.create("overtaken")
    options = sink(topics, topic, deliverySemantics="exactly-once")
    task = TaskOfBatch("q4", 0, 0)

    def rows() -> Iterator[pa.RecordBatch]:
        yield batch("a")
        assert send_exactly_once(options, task, iter([batch("a")])) == 1
        yield batch("b")

    # The client tells the reason, that the producer is fenced, in most cases (README, Non-obvious).
    with pytest.raises(DeliveryFailed, match="cannot go on"):
        send_exactly_once(options, task, rows())
    assert topics.committed_values(topic) == ["a"]


def test_purges_keep_their_interval_and_delete_what_is_consumed(topics: Topics) -> None:
    topic = topics.create("consumed", 2)
    for partition in (0, 1):
        topics.produce(topic, range(20), partition)
    _, planner = topics.planner(topic)
    now = 1_000.0
    purge = Purge(planner.view, 30_000, lambda: now)

    ids = planner.view.partitions().topic_ids

    def commit(*offsets: int) -> None:
        purge.after_commit(Offsets(at(topic, *offsets).next, ids))

    commit(5, 5)
    now += 29.9
    commit(6, 6)
    assert purge.purges == 0
    now += 0.1
    commit(12, 7)
    assert purge.purges == 1
    eventually(lambda: (topics.earliest(topic, 0), topics.earliest(topic, 1)) == (12, 7), "the purge")
    for _ in range(10):
        now += 2.9
        commit(20, 20)
    assert purge.purges == 1
    now += 1.0
    commit(20, 20)
    assert (purge.purges, purge.errors) == (2, 0)
    eventually(lambda: (topics.earliest(topic, 0), topics.earliest(topic, 1)) == (20, 20), "the purge")


def test_a_purge_that_fails_is_counted_and_no_failure(topics: Topics) -> None:
    topic = topics.create("unpurgeable")
    topics.produce(topic, range(3))
    _, planner = topics.planner(topic)
    purge = Purge(planner.view, 0)
    # More than there is: the broker refuses it.
    purge.after_commit(Offsets({(topic, 0): 99}, planner.view.partitions().topic_ids))

    def answered() -> bool:
        purge.after_commit(Offsets({}))
        return purge.errors == 1

    eventually(answered, "the answer")
    assert topics.earliest(topic) == 0


def test_a_topic_that_is_only_compacted_is_not_purged(topics: Topics) -> None:
    compacted = topics.create("table", cleanup_policy="compact")
    both = topics.create("table-and-log", cleanup_policy="compact,delete")
    _, planner = topics.planner(compacted)
    purge = Purge(planner.view, 0)
    purge.check({both})
    with pytest.raises(InvalidOption, match="table: consumed records cannot be purged"):
        purge.check({both, compacted})
