"""What producers wrote cannot be replayed from below `Log.rewritten_end`: a snapshot at or above it stays."""

from __future__ import annotations

import pytest

from storage.errors import CorruptLogError
from storage.log import Log
from storage.producer_snapshot import Snapshot, load_producers, remove_needless_snapshots, write_snapshot
from tests.storage.helpers import InlineDisk, append, new_log


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
    assert log.snapshot_offsets() == [3, 6, 9] and log.end_offset == 12
    return log


def test_the_only_snapshot_at_or_above_stays(log: Log) -> None:
    log.rewritten_end = 5
    log.remove_snapshot(9)  # there is another one
    log.remove_snapshot(6)
    log.remove_snapshot(3)
    assert log.snapshot_offsets() == [6]


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
