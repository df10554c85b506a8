"""How the records of one decision are batched."""

from __future__ import annotations

import pytest

from broker.coordinator.records import EncodedRecord, split_into_batches

MAX_BATCH_BYTES = 1000


def put(number: int) -> EncodedRecord:
    return b"%d" % number, b"x" * 400


def tombstone(number: int) -> EncodedRecord:
    return b"%d" % number, None


def test_a_decision_is_one_batch_however_large_it_is() -> None:
    """A coordinator that loads the log must not see half of it. The runtime refuses a batch that is too large."""
    records = [put(number) for number in range(100)]
    assert list(split_into_batches(records, MAX_BATCH_BYTES)) == [records]


def test_one_value_among_tombstones_keeps_all_of_them_in_one_batch() -> None:
    records = [tombstone(number) for number in range(100)] + [put(100)]
    assert list(split_into_batches(records, MAX_BATCH_BYTES)) == [records]


@pytest.mark.parametrize("count", [1, 7, 8, 50])
def test_tombstones_alone_are_split_in_order(count: int) -> None:
    """129 or 130 bytes each: seven fit."""
    records = [tombstone(number) for number in range(count)]
    batches = list(split_into_batches(records, MAX_BATCH_BYTES))
    assert [record for batch in batches for record in batch] == records
    assert [len(batch) for batch in batches[:-1]] == [7] * (len(batches) - 1)
    assert 1 <= len(batches[-1]) <= 7


def test_a_tombstone_that_fits_into_no_batch_is_a_batch_of_its_own() -> None:
    large: EncodedRecord = (b"k" * 2 * MAX_BATCH_BYTES, None)
    assert list(split_into_batches([large, large], MAX_BATCH_BYTES)) == [[large], [large]]
