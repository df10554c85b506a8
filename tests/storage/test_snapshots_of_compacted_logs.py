"""What producers wrote cannot be replayed from below `Log.rewritten_end`: a snapshot at or above it stays."""

from __future__ import annotations

import pytest

from storage.errors import CorruptLogError
from storage.log import Log
from storage.producer_snapshot import Snapshot, load_producers, remove_needless_snapshots, write_snapshot
from tests.storage.helpers import InlineDisk, append, log_files, new_log, reopen


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
