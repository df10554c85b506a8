"""What producers wrote cannot be replayed from below `Log.rewritten_end`: a snapshot at or above it stays."""

from __future__ import annotations

import pytest

from protocol.records.batch import parse_header, stamp
from protocol.records.builder import build_filler
from protocol.records.control import Marker, build_marker
from storage.aborted_index import AbortedIndex, AbortedTransaction
from storage.errors import CorruptLogError
from storage.journal import Journal
from storage.log import Log
from storage.log_creation import install_log
from storage.producer_snapshot import (
    Snapshot,
    encode_snapshot,
    load_producers,
    read_snapshot,
    remove_needless_snapshots,
    write_snapshot,
)
from storage.producer_state import ProducerStates
from storage.segment_swap import SegmentBuild
from tests.storage.helpers import (
    GROUP,
    SMALL,
    InlineDisk,
    append,
    delete_below,
    log_files,
    new_log,
    reopen,
)


def take_snapshot(log: Log) -> int:
    write_snapshot(log, Snapshot.of(load_producers(log)), log.end_offset)
    return log.end_offset


@pytest.fixture
def log(disk: InlineDisk) -> Log:
    """It has snapshots at 3, 6 and 9, and ends at 12."""
    log = new_log(disk)
    for _ in range(3):
        append(log)
        take_snapshot(log)
    append(log)
    log.flush()
    assert log.snapshot_offsets() == [3, 6, 9] and log.end_offset == 12
    return log


def test_the_only_snapshot_at_or_above_stays(log: Log) -> None:
    log.rewritten_end = 5
    log.remove_snapshot(9)  # there is another one
    log.remove_snapshot(6)
    log.remove_snapshot(3)
    assert log.snapshot_offsets() == [6]


def test_one_that_a_power_cut_takes_away_stands_in_for_no_other(log: Log) -> None:
    """The disk is slow, the group commits what it has not flushed, and there are snapshots from there."""
    take_snapshot(log)
    log.rewritten_end = 11
    flushed = log.end
    for _ in range(3):
        append(log)
        take_snapshot(log)
    for offset in (12, 15, 18):
        log.remove_snapshot(offset)
    disk, rewritten_end = log.disk, log.rewritten_end
    position = next(stored.position for stored in log.batches(15))
    log.close(is_clean=False)
    (path,) = log_files(disk.root)
    with path.open("r+b") as file:
        file.truncate(position)
    log = reopen(disk, recorded=flushed)
    log.rewritten_end = rewritten_end
    assert log.end_offset == load_producers(log).end_offset == 15


def test_a_durable_one_stands_in_for_others(log: Log) -> None:
    take_snapshot(log)
    log.rewritten_end = 11
    append(log)
    take_snapshot(log)
    log.roll()  # what lies below the active segment is durable
    log.remove_snapshot(12)
    assert log.snapshot_offsets() == [3, 6, 9, 15]


def test_the_earliest_at_or_above_is_left_by_a_pass(log: Log) -> None:
    """A later one may be of what a loss of power takes away."""
    log.rewritten_end = 6
    remove_needless_snapshots(log)
    assert log.snapshot_offsets() == [6, 9]


def test_without_a_whole_one_at_or_above_the_log_is_corrupt(log: Log) -> None:
    """An older one and a longer replay give another state."""
    log.rewritten_end = 9
    assert load_producers(log).end_offset == 12
    log.disk.open(log.snapshot_path(9)).write_at(0, b"\0\0\0\0")
    with pytest.raises(CorruptLogError):
        load_producers(log)
    log.rewritten_end = 6
    assert load_producers(log).end_offset == 12


@pytest.fixture
def trimmed(disk: InlineDisk) -> Log:
    """It begins at 6, with a snapshot that knows of two open transactions, and has two more segments, from 10 and from
    13 on. A pass has removed the marker of the first transaction, at 6, and all else below 10. That of the second one
    is at 13, and the last offset."""
    log = new_log(disk)
    for producer_id in (1, 2):
        append(log, producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True)
    take_snapshot(log)
    log.roll()
    _end(log, 1)
    append(log)
    log.roll()
    append(log)
    take_snapshot(log)
    log.roll()
    _end(log, 2)
    log.flush()
    delete_below(log, 6, log.end_offset)
    log.rewritten_end = 10
    build = SegmentBuild(disk, log.directory, [6], SMALL.index_interval_bytes)
    filler = build_filler(6, 10, log.lineage.last_term)
    build.append([filler], [parse_header(filler)])
    build.finish(10, AbortedIndex())
    log.swap([6], AbortedIndex())
    assert log.install_offset == 6 and log.snapshot_offsets() == [6, 13] and log.end_offset == 14
    return log


def _end(log: Log, producer_id: int, *, is_commit: bool = True) -> None:
    batch = build_marker(producer_id, 0, Marker(is_commit, 3), 1000)
    log.append_batches([batch], [stamp(batch, parse_header(batch), log.end_offset, log.lineage.last_term)])


def _open(states: ProducerStates) -> list[tuple[int, int]]:
    """(producer id, first offset) of each open transaction."""
    found = ((key, entry.transaction_first_offset) for key, entry in states.entries.items())
    return [each for each in found if each[1] >= 0]


def _copied(log: Log) -> tuple[Log, ProducerStates]:
    """What a new replica has, which was sent the snapshot with which an install begins, and all batches behind."""
    disk, start = log.disk, log.install_offset
    journal = Journal.open(disk)
    copy = install_log(
        disk,
        journal,
        f"{disk.root}/copy-0",
        GROUP,
        SMALL,
        log_start=start,
        rows=log.lineage.rows,
        producer_snapshot=encode_snapshot(load_producers(log, start)),
    )
    journal.close()
    producers = load_producers(copy)
    for header, batch in log.checked_batches(start):
        copy.append_batches([batch], [header])
        producers.record_stored(batch, header)
        copy.note_aborted(producers.take_aborted())
    return copy, producers


def test_a_replica_that_begins_with_an_old_snapshot_waits_for_no_marker_that_is_gone(trimmed: Log) -> None:
    copy, producers = _copied(trimmed)
    at_start = read_snapshot(copy.disk, copy.snapshot_path(6), 6)
    assert _open(at_start) == [(2, 3)], "its marker is still to come"
    assert producers.last_stable_offset(14) == 14


def test_what_is_left_of_an_aborted_transaction_opens_it_again(disk: InlineDisk) -> None:
    """The pass that made the old snapshot one from below may have removed nothing yet."""
    log = new_log(disk)
    append(log, producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
    take_snapshot(log)
    log.roll()
    append(log)
    append(log, producer_id=1, producer_epoch=0, base_sequence=3, is_transactional=True)
    _end(log, 1, is_commit=False)
    take_snapshot(log)
    log.flush()
    delete_below(log, 3, log.end_offset)
    log.rewritten_end = 10
    copy, producers = _copied(log)
    assert producers.last_stable_offset(10) == 10
    assert copy.aborted_between(3, 10) == [AbortedTransaction(1, 6, 9, 10)]


def test_a_log_whose_start_rises_waits_for_no_marker_that_is_gone(trimmed: Log) -> None:
    delete_below(trimmed, 10, trimmed.end_offset)
    assert trimmed.install_offset == 10
    states = read_snapshot(trimmed.disk, trimmed.snapshot_path(10), 10)
    assert _open(states) == [(2, 3)] and set(states.entries) == {1, 2}


def test_where_nothing_says_what_has_ended_the_log_is_corrupt(trimmed: Log) -> None:
    trimmed.disk.open(trimmed.snapshot_path(13)).write_at(0, b"\0\0\0\0")
    with pytest.raises(CorruptLogError):
        load_producers(trimmed, trimmed.install_offset)
