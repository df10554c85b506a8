"""Records that a query still wants are gone: it fails by default, and goes on where failOnDataLoss is false."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.spark.options import FROM_START, at
from tests.spark.target import Target, numbers

if TYPE_CHECKING:
    from tests.spark.reading import Reader

pytestmark = pytest.mark.slow
#: What the connector says of lost data in one of several ways.
LOSS = re.compile(r"(?i)data may have been lost|data loss|KAFKA_DATA_LOSS|out of range|failOnDataLoss")
IGNORED = {"failOnDataLoss": "false"}


def test_a_batch_that_begins_before_the_log(target: Target, reader: Reader, name: str) -> None:
    target.create(name)
    target.write(name, numbers(0, 10))
    target.delete_records(name, 4)
    assert reader.values(subscribe=name) == numbers(4, 10)
    with pytest.raises(Exception, match=LOSS):
        reader.values(subscribe=name, startingOffsets=at(name, p0=2))
    assert reader.values(subscribe=name, startingOffsets=at(name, p0=2), **IGNORED) == numbers(4, 10)


def test_a_batch_of_what_is_wholly_gone(target: Target, reader: Reader, name: str) -> None:
    target.create(name)
    target.write(name, numbers(0, 10))
    target.delete_records(name, 10)
    assert (target.starts(name), target.ends(name)) == ({0: 10}, {0: 10})
    assert reader.values(subscribe=name) == []
    gone = {"startingOffsets": at(name, p0=0), "endingOffsets": at(name, p0=5)}
    assert reader.values(subscribe=name, **gone, **IGNORED) == []
    with pytest.raises(Exception, match=LOSS):
        reader.values(subscribe=name, **gone)


def test_delete_records_behind_a_running_query(
    target: Target,
    reader: Reader,
    name: str,
    offset_fetching: str,
) -> None:
    """Trap 5, the harmless order: only what has gone through is deleted, as a purge does."""
    target.create(name)
    stream = reader.stream(subscribe=name, **FROM_START).start()
    for round_ in range(4):
        target.write(name, numbers(5 * round_, 5 * round_ + 5))
        assert stream.catch_up().values == numbers(0, 5 * round_ + 5)
        target.delete_records(name, 5 * round_ + 5)
    assert reader.values(subscribe=name) == []


@pytest.mark.parametrize("is_ignored", [False, True], ids=["fails", "goes-on"])
def test_delete_records_ahead_of_a_query(target: Target, reader: Reader, name: str, is_ignored: bool) -> None:
    """Trap 5: ten are read, ten of the next twenty are deleted before the query comes back."""
    target.create(name)
    target.write(name, numbers(0, 10))
    options = {"subscribe": name, **FROM_START, **(IGNORED if is_ignored else {})}
    stream = reader.stream(**options).available_now()
    target.write(name, numbers(10, 30))
    target.delete_records(name, 20)
    if is_ignored:
        assert stream.available_now().values == [*numbers(0, 10), *numbers(20, 30)]
    else:
        assert LOSS.search(stream.start().failure())
        assert stream.values == numbers(0, 10)


@pytest.mark.parametrize("is_ignored", [False, True], ids=["fails", "goes-on"])
def test_delete_records_in_the_middle_of_a_running_query(
    target: Target, reader: Reader, name: str, is_ignored: bool
) -> None:
    """Trap 5: twenty come and ten of them are deleted while the query is busy with its first batch."""
    target.create(name)
    target.write(name, numbers(0, 10))

    def lose_ten(number: int) -> None:
        if number == 0:
            target.write(name, numbers(10, 30))
            target.delete_records(name, 20)

    # The executor's consumer is one step ahead. What it asks for must be answered before there is more.
    options = {"subscribe": name, "kafka.fetch.max.wait.ms": "1", **FROM_START}
    stream = reader.stream(**options, **(IGNORED if is_ignored else {}))
    stream.after_batch = lose_ten
    stream.start()
    if is_ignored:
        assert stream.wait_for(20).catch_up().values == [*numbers(0, 10), *numbers(20, 30)]
        assert stream.sizes == [10, 10]
    else:
        assert LOSS.search(stream.failure())
        assert stream.values == numbers(0, 10)


@pytest.mark.parametrize("is_ignored", [False, True], ids=["fails", "goes-on"])
def test_topic_deleted_and_created_again(target: Target, reader: Reader, name: str, is_ignored: bool) -> None:
    """Trap 6: the offsets of the checkpoint lie behind the end of the new topic."""
    target.create(name)
    target.write(name, numbers(0, 10))
    options = {"subscribe": name, **FROM_START, **(IGNORED if is_ignored else {})}
    stream = reader.stream(**options).start().catch_up().stop()
    target.delete(name)
    target.create(name)
    target.write(name, numbers(0, 4, "new"))
    stream.start()
    if is_ignored:
        # The query takes up the new end of four, and goes on from there.
        stream.wait_until(lambda: stream.end_offsets == {name: {"0": 4}}, "the new end")
        target.write(name, numbers(4, 8, "new"))
        stream.wait_for(14)
        assert stream.values == [*numbers(0, 10), *numbers(4, 8, "new")]
    else:
        assert LOSS.search(stream.failure())
        assert stream.values == numbers(0, 10)


def test_topic_deleted_under_a_running_query(target: Target, reader: Reader, name: str) -> None:
    """Trap 6: a topic that is gone is no topic without news."""
    target.create(name)
    target.write(name, numbers(0, 5))
    stream = reader.stream(subscribe=name, **FROM_START).start().catch_up()
    target.delete(name)
    error = stream.failure()
    assert re.search(
        r"(?i)unknown.?topic|does not host|data may have been lost|partitions? .*gone|KAFKA", error
    )
    assert stream.values == numbers(0, 5)
