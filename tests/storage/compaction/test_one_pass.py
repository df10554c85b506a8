"""Passes over whole generated logs: both tables write the same bytes and count the same, and what is left is what
Kafka's rules say, record by record."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.records.batch import Compression, parse_header
from storage.compaction.aborted_data import AbortedData
from storage.compaction.counts import PassCounts
from storage.compaction.key_map import KeyMap, KeyMapTooSmallError
from storage.compaction.key_table import KeyTable
from tests.storage.compaction.model import (
    RETENTION_MS,
    UNSET,
    History,
    Replica,
    Seen,
    Written,
    aborted_in,
    assert_well_formed,
    data_of,
    filtered,
    key_buffer,
)
from tests.storage.compaction.test_compaction_random import apply, start, steps
from tests.storage.compaction.test_key_table import TABLES, with_native

THOROUGH = settings(max_examples=60, deadline=None, database=None)
NewTable = Callable[[int], KeyTable]


def written_by(steps: list[tuple[Any, ...]]) -> tuple[History, Replica]:
    """Without the passes. The last transactions may be open."""
    history = start()
    for step in steps:
        if step[0] != "pass":
            apply(history, step)
    return history, history.replicas[0]


class Pass:
    """One pass over a list of batches, with bounds of any kind."""

    def __init__(
        self,
        replica: Replica,
        batches: list[bytes],
        table: NewTable,
        key_count: int,
        start_offset: int = 0,
        **changes: Any,
    ) -> None:
        self.key_map = KeyMap(key_buffer(key_count), start_offset, table=table)
        self.is_too_small = False
        aborted = AbortedData(aborted_in(replica.stored))
        for batch in batches:
            header = parse_header(batch)
            if header.next_offset > replica.history.last_stable_offset:
                break
            if header.next_offset <= start_offset:
                continue
            try:
                if not self.key_map.add_batch(memoryview(batch), aborted):
                    break
            except KeyMapTooSmallError:
                self.is_too_small = True
                break
        self.filter = replica.new_filter(self.key_map, **changes)
        self.output = filtered(self.filter, batches)

    @property
    def all_it_says(self) -> tuple[list[bytes], PassCounts, int, int, bool]:
        key_map = self.key_map
        return self.output, self.filter.counts, key_map.end_offset, len(key_map), self.is_too_small


bounds = st.integers(0, 60)


@with_native
@THOROUGH
@given(steps, st.integers(1, 6), st.integers(3, 9), st.integers(0, 1200), bounds, bounds)
def test_both_tables_give_the_same_passes(
    steps: list[tuple[Any, ...]], first_keys: int, second_keys: int, wait_ms: int, mtro: int, mxro: int
) -> None:
    history, replica = written_by(steps)
    twin, other = (Pass(replica, replica.stored, table, first_keys) for table in TABLES)
    assert twin.all_it_says == other.all_it_says
    history.now_ms += wait_ms
    cleaned_end = twin.key_map.end_offset
    twin, other = (
        Pass(
            replica,
            twin.output,
            table,
            second_keys,
            cleaned_end,
            cleaned_end_offset=cleaned_end,
            max_tombstone_remove_offset=mtro,
            max_transaction_remove_offset=mxro,
        )
        for table in TABLES
    )
    assert twin.all_it_says == other.all_it_says


class KafkasRules:
    """What Kafka's cleaner leaves, from what was written alone: no batch is decoded here but for where it ends.

    Below the end of the map stays the newest record of each key, of those that were not aborted. A tombstone stays
    until a later pass, `delete.retention.ms` after the first one that met it, and only goes below the bound.
    """

    def __init__(self, history: History, stored: list[bytes]) -> None:
        self.history = history
        headers = [parse_header(batch) for batch in stored]
        self.ends = [
            header.next_offset for header in headers if header.next_offset <= history.last_stable_offset
        ]

    def batch_end(self, written: Written) -> int:
        return next(end for end in self.ends if end > written.record.offset)

    def end_of_map(self, from_offset: int, key_count: int) -> int:
        """Where the keys become too many."""
        reached = from_offset
        for end in self.ends:
            if end <= from_offset:
                continue
            keys = {
                written.record.key
                for written in self.history.written
                if from_offset <= written.record.offset < end and written.is_committed
            }
            if len(keys - {None}) > key_count:
                break
            reached = end
        return reached

    def left(self, end_offset: int, expired_below: int = 0) -> list[Seen]:
        newest = self.history.newest_below(end_offset)
        return [
            written.record
            for written in self.history.written
            if written.record.offset >= end_offset
            or (
                written.record.key is not None
                and newest.get(written.record.key) is written
                and not (written.record.value is None and self.batch_end(written) <= expired_below)
            )
        ]


@pytest.mark.parametrize("table", TABLES)
@THOROUGH
@given(
    steps, st.integers(1, 6), st.integers(3, 9), st.sampled_from((0, RETENTION_MS - 1, RETENTION_MS)), bounds
)
def test_what_is_left_is_what_kafkas_rules_say(
    table: NewTable,
    steps: list[tuple[Any, ...]],
    first_keys: int,
    second_keys: int,
    wait_ms: int,
    mtro: int,
) -> None:
    history, replica = written_by(steps)
    rules = KafkasRules(history, replica.stored)
    first = Pass(replica, replica.stored, table, first_keys, max_tombstone_remove_offset=mtro)
    end = first.key_map.end_offset
    assert end == rules.end_of_map(0, first_keys)
    assert data_of(first.output) == rules.left(end)
    for batch in first.output:
        assert_well_formed(batch)

    history.now_ms += wait_ms
    second = Pass(
        replica,
        first.output,
        table,
        second_keys,
        end,
        cleaned_end_offset=end,
        max_tombstone_remove_offset=mtro,
    )
    # What the map of the second pass does not know, the first pass has compared already.
    later_end = second.key_map.end_offset
    assert later_end == rules.end_of_map(end, second_keys)
    assert data_of(second.output) == rules.left(
        later_end, expired_below=min(mtro, end) if wait_ms >= RETENTION_MS else UNSET
    )
    for batch in second.output:
        assert_well_formed(batch)


@with_native
@pytest.mark.parametrize("compression", list(Compression))
@pytest.mark.parametrize("is_transactional", [False, True])
def test_both_tables_give_the_same_pass_of_large_batches(
    compression: Compression, is_transactional: bool
) -> None:
    """More records than are looked up together, and keys by the hundred."""
    history = start()
    for number in range(12):
        pairs = [
            (
                b"key %d" % (index * 7919 % (150 + 100 * number)) if index % 41 else None,
                None if index % 29 == number else b"v" * (index % 50),
            )
            for index in range(300)
        ]
        history.write(
            *pairs,
            compression=compression,
            pid=1 if is_transactional else -1,
            is_transactional=is_transactional,
        )
        if is_transactional and number % 3 == 2:
            history.end(1, is_commit=number != 5)
    replica = history.replicas[0]
    twin, other = (Pass(replica, replica.stored, table, 900) for table in TABLES)
    assert twin.all_it_says == other.all_it_says
    assert 0 < twin.filter.counts.records_out < twin.filter.counts.records_in
    assert twin.filter.counts.tombstones.count > 0
