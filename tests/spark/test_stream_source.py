"""Streams: where they begin, how much a trigger takes, what comes up while they run, and going on from a checkpoint."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from tests.integration.harness import eventually
from tests.spark.options import DEPRECATED, FROM_START, at, second
from tests.spark.target import LIMIT_S, Target, numbers

if TYPE_CHECKING:
    from tests.spark.reading import Reader

pytestmark = pytest.mark.slow


def test_ways_to_name_topics(target: Target, reader: Reader, name: str, offset_fetching: str) -> None:
    target.create(name, 2)
    target.write(name, numbers(0, 4))
    target.write(name, numbers(0, 3, "w"), partition=1)
    for way, wanted in (
        ({"subscribe": name}, [*numbers(0, 4), *numbers(0, 3, "w")]),
        ({"subscribePattern": re.escape(name)}, [*numbers(0, 4), *numbers(0, 3, "w")]),
        ({"assign": json.dumps({name: [1]})}, numbers(0, 3, "w")),
    ):
        stream = reader.stream(f"checkpoint-{next(iter(way))}", **way, **FROM_START)
        assert stream.available_now().values == wanted


def test_new_records_while_it_runs(target: Target, reader: Reader, name: str, offset_fetching: str) -> None:
    target.create(name)
    target.write(name, numbers(0, 5))
    stream = reader.stream(subscribe=name, **FROM_START).start().catch_up()
    for round_ in range(1, 4):
        target.write(name, numbers(5 * round_, 5 * round_ + 5))
        assert stream.catch_up().values == numbers(0, 5 * round_ + 5)
    assert stream.end_offsets == {name: {"0": 20}}


def test_only_what_is_new(target: Target, reader: Reader, name: str) -> None:
    """`latest` is where a stream begins by default."""
    target.create(name)
    target.write(name, numbers(0, 5))
    stream = reader.stream(subscribe=name).start().catch_up()
    assert stream.values == []
    target.write(name, numbers(5, 8))
    assert stream.catch_up().values == numbers(5, 8)


def test_from_offsets_in_json(target: Target, reader: Reader, name: str) -> None:
    target.create(name, 3)
    for partition in range(3):
        target.write(name, numbers(0, 5), partition=partition)
    stream = reader.stream(subscribe=name, startingOffsets=at(name, p0=-2, p1=3, p2=-1)).available_now()
    assert [(row.partition, row.offset) for row in stream.rows] == [
        *((0, offset) for offset in range(5)), (1, 3), (1, 4),
    ]  # fmt: skip


def test_from_a_timestamp(target: Target, reader: Reader, name: str, offset_fetching: str) -> None:
    target.create(name, 2)
    target.write(name, numbers(0, 10), timestamps_ms=[second(n) for n in range(10)])
    target.write(name, numbers(0, 3, "w"), partition=1, timestamps_ms=[second(n) for n in range(3)])
    late = {"subscribe": name, "startingTimestamp": str(second(6))}
    failing = reader.stream("error", **late).start()
    assert re.search(r"(?i)no offset matched|KAFKA_", failing.failure())
    stream = reader.stream("latest", startingOffsetsByTimestampStrategy="latest", **late).available_now()
    assert stream.values == numbers(6, 10)
    each = at(name, p0=second(8), p1=second(1))
    stream = reader.stream("each", subscribe=name, startingOffsetsByTimestamp=each).available_now()
    assert stream.values == [*numbers(8, 10), *numbers(1, 3, "w")]


# -- how much at once ----------------------------------------------------------------------------------------


def test_at_most_so_many_per_trigger(target: Target, reader: Reader, name: str, offset_fetching: str) -> None:
    target.create(name)
    target.write(name, numbers(0, 25))
    stream = reader.stream(subscribe=name, maxOffsetsPerTrigger="10", **FROM_START).available_now()
    assert stream.sizes == [10, 10, 5]
    assert stream.values == numbers(0, 25)


def test_at_most_so_many_of_all_partitions(target: Target, reader: Reader, name: str) -> None:
    """The share of a partition follows its backlog: 30 and 10 records give 15 and 5 of each 20."""
    target.create(name, 2)
    target.write(name, numbers(0, 30))
    target.write(name, numbers(0, 10), partition=1)
    stream = reader.stream(subscribe=name, maxOffsetsPerTrigger="20", **FROM_START).available_now()
    assert [[row.partition for row in batch].count(1) for batch in stream.batches.values() if batch] == [5, 5]
    assert stream.sizes == [20, 20]


def test_once_takes_all(target: Target, reader: Reader, name: str) -> None:
    target.create(name)
    target.write(name, numbers(0, 25))
    stream = reader.stream(subscribe=name, maxOffsetsPerTrigger="10", **FROM_START).start(once=True)
    assert stream.query.awaitTermination(int(LIMIT_S))
    assert stream.sizes == [25]


def test_waits_for_so_many_or_so_long(target: Target, reader: Reader, name: str) -> None:
    """Ten together start a batch; fewer do when they have waited for maxTriggerDelay."""
    target.create(name)
    target.write(name, numbers(0, 4))
    patient = {"subscribe": name, "minOffsetsPerTrigger": "10", **FROM_START}
    stream = reader.stream("patient", maxTriggerDelay="1h", **patient).start().wait_for(4)
    # The first batch takes what is there: there is no earlier one to wait since.
    target.write(name, numbers(4, 8))
    for _ in range(3):
        seen = stream.query.lastProgress
        eventually(lambda seen=seen: stream.query.lastProgress != seen, "a trigger", LIMIT_S)  # type: ignore[misc]
    assert stream.values == numbers(0, 4)
    target.write(name, numbers(8, 14))
    assert stream.wait_for(14).sizes == [4, 10]
    stream.stop()
    hasty = reader.stream("hasty", maxTriggerDelay="1s", **patient).start().wait_for(14)
    target.write(name, numbers(14, 16))
    assert hasty.wait_for(16).values == numbers(0, 16)


def test_available_now_ends_where_the_topic_ended(target: Target, reader: Reader, name: str) -> None:
    target.create(name)
    target.write(name, numbers(0, 10))
    stream = reader.stream(subscribe=name, **FROM_START).available_now()
    assert (stream.values, stream.end_offsets) == (numbers(0, 10), {name: {"0": 10}})
    target.write(name, numbers(10, 14))
    assert stream.available_now().values == numbers(0, 14)
    assert stream.available_now().values == numbers(0, 14)


def test_pieces_of_a_batch(target: Target, reader: Reader, name: str) -> None:
    target.create(name)
    target.write(name, numbers(0, 30))
    for option in ({"minPartitions": "3"}, {"maxRecordsPerPartition": "10"}):
        stream = reader.stream(f"by-{next(iter(option))}", subscribe=name, **option, **FROM_START)
        assert stream.available_now().values == numbers(0, 30)
        assert len({row.piece for row in stream.rows}) == 3


# -- what comes up while it runs -----------------------------------------------------------------------------


def test_new_partitions_begin_at_their_start(
    target: Target, reader: Reader, name: str, offset_fetching: str
) -> None:
    """Trap 7: also a stream that began at `latest` misses nothing of them."""
    target.create(name)
    target.write(name, numbers(0, 5))
    # A consumer in a group hears of them when it asks for the topics again, by default every five minutes.
    stream = reader.stream(subscribe=name, **{"kafka.metadata.max.age.ms": "1000"}).start().catch_up()
    target.add_partitions(name, 3)
    target.write(name, numbers(0, 3), partition=1)
    target.write(name, numbers(0, 4), partition=2)
    target.write(name, numbers(5, 6))
    stream.wait_for(8).catch_up()
    counts = [sum(row.partition == partition for row in stream.rows) for partition in range(3)]
    assert (counts, stream.end_offsets) == ([1, 3, 4], {name: {"0": 6, "1": 3, "2": 4}})


def test_new_topics_of_a_pattern(target: Target, reader: Reader, name: str) -> None:
    target.create(f"{name}-a")
    target.write(f"{name}-a", numbers(0, 2))
    stream = reader.stream(subscribePattern=f"{re.escape(name)}-.", **FROM_START).start().catch_up()
    target.create(f"{name}-b")
    target.write(f"{name}-b", numbers(0, 3))
    stream.wait_for(5).catch_up()
    assert sorted(row.topic for row in stream.rows) == [f"{name}-a"] * 2 + [f"{name}-b"] * 3


# -- checkpoints and groups ----------------------------------------------------------------------------------


def test_goes_on_from_its_checkpoint(target: Target, reader: Reader, name: str, offset_fetching: str) -> None:
    target.create(name, 2)
    target.write(name, numbers(0, 6))
    stream = reader.stream(subscribe=name, **FROM_START).start().catch_up().stop()
    target.write(name, numbers(6, 9))
    target.write(name, numbers(0, 2, "w"), partition=1)
    stream.start().catch_up()
    assert [row.offset for row in stream.rows if row.partition == 0] == list(range(9))
    assert [row.offset for row in stream.rows if row.partition == 1] == [0, 1]


@pytest.mark.parametrize("option", ["groupIdPrefix", "kafka.group.id"])
def test_the_group_has_the_name_that_was_given(
    target: Target, reader: Reader, name: str, option: str
) -> None:
    """Only the deprecated way joins a group. Brokers and their ACLs see its name."""
    target.create(name)
    target.write(name, numbers(0, 5))
    reader.spark.conf.set(DEPRECATED, "true")
    try:
        options = {option: f"group-of-{name}", "subscribe": name, **FROM_START}
        stream = reader.stream(**options).start().catch_up()
        found = {group for group in target.groups() if group.startswith(f"group-of-{name}")}
        assert stream.values == numbers(0, 5)
        assert len(found) == 1
        assert (found == {f"group-of-{name}"}) == (option == "kafka.group.id")
    finally:
        reader.spark.conf.unset(DEPRECATED)
