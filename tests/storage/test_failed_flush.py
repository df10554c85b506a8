"""A flush failed, and the kernel calls clean what never reached the disk: to flush it again proves nothing
(replication.md section 2). Either the process has ended, and the next one finds it in the page cache; or the flusher
was told of the error, and the loop flushes the same file before it hears of that."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from storage.disk import DiskError, DiskFailedError
from storage.journal import Journal
from storage.journal_records import Vote
from storage.log import Log
from storage.log_creation import create_log
from storage.log_recovery import open_log
from storage.log_types import FlushedEnd
from tests.simulator.disk import MemoryDisk
from tests.simulator.loop import new_loop
from tests.simulator.memory_file import MemoryFile
from tests.storage.helpers import GROUP, ROW_KIND, SMALL, append


def new_disk(seed: int) -> MemoryDisk:
    return MemoryDisk("/data", new_loop(), random.Random(seed))


def begin_log(disk: MemoryDisk) -> Log:
    """With a row and a batch, durable."""
    log = create_log(disk, "/data/foo-0", GROUP, SMALL)
    disk.flush_directory("/data")
    log.append_row(1, ROW_KIND, b"first")
    append(log)
    log.flush()
    return log


def recover(disk: MemoryDisk, recorded: FlushedEnd) -> Log:
    return open_log(disk, "/data/foo-0", GROUP, SMALL, recorded=recorded, log_start=0, is_clean=False)


@pytest.mark.parametrize("seed", range(20))
def test_votes_that_a_restart_finds_survive_a_loss_of_power(seed: int) -> None:
    disk = new_disk(seed)
    journal = Journal.open(disk)
    journal.append(Vote(GROUP, 1, None))
    journal.flush()
    journal.append(Vote(GROUP, 2, None))
    disk.faults.flush_error_rate = 1.0
    with pytest.raises(DiskError):
        journal.flush()
    disk.faults.flush_error_rate = 0.0
    journal = Journal.open(disk)  # the process is started again, power never went
    found = journal.state(GROUP)
    assert found is not None
    term = found.term
    journal.append(Vote(GROUP, 3, None))
    journal.flush()
    disk.crash()
    after = Journal.open(disk).state(GROUP)
    assert after is not None and after.term == 3 > term


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("what", ["batch", "row"])
def test_a_log_that_a_restart_finds_survives_a_loss_of_power(seed: int, what: str) -> None:
    disk = new_disk(seed)
    log = begin_log(disk)
    recorded = log.flushed_end
    if what == "batch":
        append(log)
    else:
        log.append_row(2, ROW_KIND, b"second")
    disk.faults.flush_error_rate = 1.0
    with pytest.raises(DiskError):
        log.flush()
    disk.faults.flush_error_rate = 0.0
    believed = recover(disk, recorded).flushed_end
    disk.crash()
    assert recover(disk, recorded).end.end_index >= believed.end_index


@pytest.mark.parametrize("seed", range(10))
def test_a_sealed_segment_that_a_restart_finds_survives_a_loss_of_power(seed: int) -> None:
    """Whatever the flush was told that sealed it."""
    disk = new_disk(seed)
    log = begin_log(disk)
    recorded = log.flushed_end
    for _ in range(2):
        append(log)
        file = log._segments[-1].file
        assert isinstance(file, MemoryFile)
        file.node.complete_pending(file.node.operation_count, durably=False)
        log.roll()
    believed = recover(disk, recorded).flushed_end
    assert believed.end_index > recorded.end_index
    disk.crash()
    assert recover(disk, recorded).end.end_index >= believed.end_index


def append_behind_row(log: Log) -> None:
    """The batch is preceded by a flush of the row, of the same term: without the row, it would have another index."""
    append(log)


@pytest.mark.parametrize("act", [Log.roll, Log.flush, append_behind_row], ids=["roll", "flush", "append"])
@pytest.mark.parametrize("seed", range(5))
def test_nothing_is_believed_durable_beside_a_round_that_has_failed(
    seed: int, act: Callable[[Log], None]
) -> None:
    disk = new_disk(seed)
    disk.faults.at_once_rate = 0.0
    log = begin_log(disk)
    if act is append_behind_row:
        log.append_row(1, ROW_KIND, b"configuration")
    else:
        append(log)
    end = log.end
    disk.flush(log.begin_flush().files, lambda error: None)
    disk.faults.flush_error_rate = 1.0
    disk._flush_step()  # has failed; the loop hears of it in its next turn
    disk.faults.flush_error_rate = 0.0
    with pytest.raises(DiskFailedError):
        act(log)
    assert log.flushed_end.end_index < end.end_index
