"""Trap 3: what a reader of committed records sees at the end of a log: aborted records, markers, open transactions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.spark.options import COMMITTED, FROM_START, UNCOMMITTED
from tests.spark.target import LIMIT_S, Target, numbers

if TYPE_CHECKING:
    from tests.spark.reading import Reader

pytestmark = pytest.mark.slow


def commit(target: Target, topic: str, values: list[str]) -> None:
    with target.transaction(f"commit-{topic}") as producer:
        target.write(topic, values, producer=producer)
        producer.commit_transaction(LIMIT_S)
    target.wait_decided(topic)


def abort(target: Target, topic: str, values: list[str]) -> None:
    with target.transaction(f"abort-{topic}") as producer:
        target.write(topic, values, producer=producer)
        producer.abort_transaction(LIMIT_S)
    target.wait_decided(topic)


def both(reader: Reader, topic: str) -> tuple[list[str | None], list[str | None]]:
    """What a batch and a stream of all that is there say of the committed records."""
    stream = reader.stream("both", subscribe=topic, **FROM_START, **COMMITTED).available_now()
    return reader.values(subscribe=topic, **COMMITTED), stream.values


def test_a_log_that_ends_in_a_commit_marker(target: Target, reader: Reader, name: str) -> None:
    target.create(name)
    commit(target, name, numbers(0, 4))
    assert target.ends(name) == {0: 5}
    assert both(reader, name) == (numbers(0, 4), numbers(0, 4))


def test_a_log_that_ends_in_aborted_records(
    target: Target,
    reader: Reader,
    name: str,
    offset_fetching: str,
) -> None:
    target.create(name)
    commit(target, name, numbers(0, 4))
    abort(target, name, numbers(4, 9))
    assert target.ends(name) == {0: 11}
    assert both(reader, name) == (numbers(0, 4), numbers(0, 4))
    assert reader.values(subscribe=name, **UNCOMMITTED) == numbers(0, 9)


def test_a_log_of_nothing_but_aborted_records(target: Target, reader: Reader, name: str) -> None:
    target.create(name)
    for round_ in range(3):
        abort(target, name, numbers(10 * round_, 10 * round_ + 10))
    assert both(reader, name) == ([], [])
    assert reader.values(subscribe=name, **UNCOMMITTED) == numbers(0, 30)


def test_committed_between_aborted(target: Target, reader: Reader, name: str) -> None:
    target.create(name)
    for round_ in range(4):
        abort(target, name, numbers(0, 25, "aborted"))
        commit(target, name, numbers(5 * round_, 5 * round_ + 5))
    assert both(reader, name) == (numbers(0, 20), numbers(0, 20))
    small = {"minPartitions": "7", "kafka.max.poll.records": "3"}
    assert reader.values(subscribe=name, **small, **COMMITTED) == numbers(0, 20)


def test_triggers_that_end_within_aborted_records(target: Target, reader: Reader, name: str) -> None:
    """Ranges of ten offsets, some without a single record that counts."""
    target.create(name)
    commit(target, name, numbers(0, 5))
    abort(target, name, numbers(0, 40, "aborted"))
    commit(target, name, numbers(5, 10))
    stream = reader.stream(
        subscribe=name, maxOffsetsPerTrigger="10", **FROM_START, **COMMITTED
    ).available_now()
    assert (stream.values, stream.end_offsets) == (numbers(0, 10), {name: {"0": 53}})


def test_an_open_transaction_holds_a_stream_back(
    target: Target,
    reader: Reader,
    name: str,
    offset_fetching: str,
) -> None:
    target.create(name)
    target.write(name, numbers(0, 3))
    with target.transaction(f"open-{name}") as producer:
        target.write(name, numbers(3, 6), producer=producer)
        target.write(name, numbers(6, 8))
        assert both(reader, name) == (numbers(0, 3), numbers(0, 3))
        assert reader.values(subscribe=name, **UNCOMMITTED) == numbers(0, 8)
        stream = reader.stream("held", subscribe=name, **FROM_START, **COMMITTED).start().catch_up()
        assert (stream.values, stream.end_offsets) == (numbers(0, 3), {name: {"0": 3}})
        producer.commit_transaction(LIMIT_S)
    assert stream.wait_for(8).values == numbers(0, 8)


def test_an_open_transaction_that_is_aborted(target: Target, reader: Reader, name: str) -> None:
    target.create(name)
    with target.transaction(f"open-{name}") as producer:
        target.write(name, numbers(0, 3, "aborted"), producer=producer)
        target.write(name, numbers(0, 2))
        stream = reader.stream(subscribe=name, **FROM_START, **COMMITTED).start().catch_up()
        assert stream.values == []
        producer.abort_transaction(LIMIT_S)
    assert stream.wait_for(2).catch_up().values == numbers(0, 2)


def test_a_transaction_left_open_is_ended_by_its_timeout(target: Target, reader: Reader, name: str) -> None:
    target.create(name)
    producer = target.producer(transactional_id=f"left-{name}", transaction_timeout_ms=2_000)
    producer.init_transactions(LIMIT_S)
    producer.begin_transaction()
    target.write(name, numbers(0, 3, "aborted"), producer=producer)
    target.write(name, numbers(0, 2))
    stream = reader.stream(subscribe=name, **FROM_START, **COMMITTED).start()
    assert stream.wait_for(2).values == numbers(0, 2)
