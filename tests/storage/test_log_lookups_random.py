"""Random logs, and every way to find something in them against a list of all records: reads, offsets by time, the
youngest record; across rolls, truncations, deletions, fillers, passes of compaction and restarts; in batches of every
codec, with the times of producers or of the append. What a pass removes is a value that a newer one supersedes, or a
deletion that may go: no look-up finds it any more, and nothing else is missing, wherever the log begins."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple

import pytest

from protocol.records.batch import Compression, parse_header
from protocol.records.builder import NewRecord, build_batch
from protocol.records.record import iter_records
from protocol.records.validate import set_log_append_time
from storage.compaction.batch_filter import PassRules
from storage.compaction.plan import SegmentFacts
from storage.log import Log
from storage.log_cleaning import CleaningTask, PassOver, SegmentReady, clean
from storage.log_types import LogConfig
from tests.storage.compaction.model import key_buffer
from tests.storage.helpers import (
    ROW_KIND,
    append_filler,
    delete_below,
    fresh_disk,
    looked_up,
    new_log,
    reopen,
    stored_headers,
)

TINY = LogConfig(segment_bytes=900, index_interval_bytes=100)
STEPS = 60
KEYS = [b"a", b"b", b"c", b"a key of more than sixteen bytes"]
LOOKUPS = 6


class Known(NamedTuple):
    offset: int
    timestamp_ms: int
    #: Of its batch.
    last_offset: int


def known_records(log: Log) -> list[Known]:
    """Read from the first byte to the last."""
    return [
        Known(record.offset, record.timestamp_ms, stored.header.last_offset)
        for stored in log.batches(log.first_stored_offset)
        for record in iter_records(stored.view())
        if record.offset >= log.start_offset
    ]


def last_values(log: Log) -> dict[bytes, tuple[int, bytes]]:
    """Of each key that is not deleted: where its last record is, and what it says."""
    found: dict[bytes, tuple[int, bytes]] = {}
    for stored in log.batches(log.first_stored_offset):
        for record in iter_records(stored.view()):
            if record.offset < log.start_offset:
                continue
            assert record.key is not None
            found.pop(bytes(record.key), None)
            if record.value is not None:
                found[bytes(record.key)] = (record.offset, bytes(record.value))
    return found


def check_times(log: Log, known: list[Known], timestamp_ms: int, below: int) -> None:
    first = next((record for record in known if record.timestamp_ms >= timestamp_ms), None)
    if first is not None and first.offset >= below:
        first = None
    found = looked_up(log.offset_for_timestamp(timestamp_ms, below))
    assert (found and (found.offset, found.timestamp_ms)) == (first and first[:2])

    visible = [record for record in known if record.offset < below and record.timestamp_ms >= 0]
    youngest = max(visible, key=lambda record: (record.timestamp_ms, -record.offset), default=None)
    found = looked_up(log.max_timestamp_offset(below))
    assert (found and (found.offset, found.timestamp_ms)) == (youngest and youngest[:2])


def check_read(log: Log, offset: int, max_bytes: int, below: int) -> None:
    expected = next((header for header in stored_headers(log) if offset <= header.last_offset < below), None)
    found = log.read(offset, max_bytes, below_offset=below)
    if expected is None or offset >= below:
        assert found is None
    else:
        assert found is not None and found.next_offset <= below
        assert parse_header(found.view()).last_offset == expected.last_offset


def check(log: Log, rng: random.Random) -> None:
    known = known_records(log)
    ends = [log.start_offset, *(header.next_offset for header in stored_headers(log))]
    for _ in range(LOOKUPS):
        check_times(log, known, rng.choice([-1, 0, 1, 50, 100, 150, rng.randrange(220)]), rng.choice(ends))
        offset = rng.randint(log.start_offset, log.end_offset)
        check_read(log, offset, rng.choice([1, 100, 300, 2000]), rng.choice(ends))


class RandomLog:
    """A log and what may happen to it."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.log: Log
        #: How far passes have come. What lies below is committed, and recovery must not cut it.
        self.cleaned_end = -1
        self.passes = 0

    def append(self) -> None:
        rng, log = self.rng, self.log
        records = [
            NewRecord(
                rng.choice(KEYS),
                None if rng.random() < 0.1 else b"v" * rng.randint(0, 60),
                -1 if rng.random() < 0.1 else rng.randrange(200),
            )
            for _ in range(rng.randint(1, 4))
        ]
        codec = rng.choice([Compression.NONE, Compression.NONE, *Compression])
        batch = build_batch(
            records, base_offset=log.end_offset, leader_epoch=log.lineage.last_term, compression=codec
        )
        if rng.random() < 0.2:
            set_log_append_time(batch, rng.randrange(200))
        log.append_batches([batch], [parse_header(batch)])

    def append_row(self) -> None:
        self.log.append_row(self.log.lineage.last_term + 1, ROW_KIND, b"")

    def roll(self) -> None:
        self.log.roll()

    def append_filler(self) -> None:
        append_filler(self.log, self.rng.randint(1, 5))

    def truncate(self) -> None:
        ends = [header.last_offset + 1 for header in stored_headers(self.log)]
        ends = [end for end in ends if end >= max(self.log.start_offset, self.cleaned_end)]
        if ends:
            self.log.truncate(self.log.lineage.index_of(self.rng.choice(ends) - 1) + 1, 0)

    def restart(self) -> None:
        log, is_clean = self.log, self.rng.random() < 0.5
        log.flush()
        end, start = log.flushed_end, log.start_offset
        log.close(is_clean=is_clean)
        recorded = end if is_clean or self.passes or self.rng.random() < 0.5 else None
        self.log = reopen(log.disk, TINY, recorded=recorded, log_start=start, is_clean=is_clean)
        assert self.log.end == end

    def delete(self) -> None:
        log = self.log
        log.flush()
        delete_below(log, self.rng.randint(log.start_offset, log.end_offset), log.end_offset)

    def compact(self) -> None:
        """With a map that may be too small for all keys."""
        log, rng = self.log, self.rng
        log.flush()
        first_dirty = max(self.cleaned_end, log.start_offset)
        active_base = log.active_segment_base
        before = last_values(log)
        task = CleaningTask(
            log.directory,
            [SegmentFacts(*stored[:3], stored.max_timestamp_ms, -1) for stored in log.segments()],
            [(row.offset, row.term) for row in log.lineage.rows],
            first_dirty,
            max(active_base, first_dirty),
            PassRules(0, 0, 0, first_dirty, first_dirty, first_dirty, log.end_offset - 1, frozenset()),
            [],
            key_buffer(rng.choice([4, 1000])),
            TINY.segment_bytes,
            TINY.index_interval_bytes,
        )
        for event in clean(log.disk, task):
            if isinstance(event, SegmentReady):
                log.swap(event.bases, event.aborted)
            elif isinstance(event, PassOver):
                self.cleaned_end = max(self.cleaned_end, event.end_offset)
        self.passes += 1
        assert last_values(log) == before

    def look(self) -> None:
        check(self.log, self.rng)

    def run(self) -> None:
        acts: dict[Callable[[], None], float] = {
            self.append: 12,
            self.append_row: 1,
            self.roll: 1,
            self.append_filler: 1,
            self.truncate: 1.5,
            self.restart: 1.5,
            self.delete: 1,
            self.compact: 1.5,
            self.look: 3,
        }
        with fresh_disk() as disk:
            self.log = new_log(disk, TINY)
            for _ in range(STEPS):
                self.rng.choices(list(acts), list(acts.values()))[0]()
            self.look()
            self.log.close(is_clean=False)


@pytest.mark.parametrize("seed", range(40))
def test_what_is_looked_up_is_what_a_walk_over_everything_finds(seed: int) -> None:
    RandomLog(random.Random(seed)).run()
