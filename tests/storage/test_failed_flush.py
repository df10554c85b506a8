"""A flush failed and the process ended; the next one finds in the page cache what never reached the disk, and the
kernel calls it clean (replication.md section 2: a failed fsync is never retried: to retry it proves nothing)."""

from __future__ import annotations

import random

import pytest

from storage.disk import DiskError
from storage.journal import Journal
from storage.journal_records import Vote
from storage.log_creation import create_log
from storage.log_recovery import open_log
from tests.simulator.disk import MemoryDisk
from tests.simulator.loop import new_loop
from tests.storage.helpers import GROUP, ROW_KIND, SMALL, append


def new_disk(seed: int) -> MemoryDisk:
    disk = MemoryDisk("/data", new_loop(), random.Random(seed))
    disk.make_directory("/data")
    return disk


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
    log = create_log(disk, "/data/foo-0", GROUP, SMALL)
    disk.flush_directory("/data")
    log.append_row(1, ROW_KIND, b"first")
    append(log)
    log.flush()
    recorded = log.flushed_end
    if what == "batch":
        append(log)
    else:
        log.append_row(2, ROW_KIND, b"second")
    disk.faults.flush_error_rate = 1.0
    with pytest.raises(DiskError):
        log.flush()
    disk.faults.flush_error_rate = 0.0
    log = open_log(disk, "/data/foo-0", GROUP, SMALL, recorded=recorded, log_start=0, is_clean=False)
    believed = log.flushed_end
    disk.crash()
    log = open_log(disk, "/data/foo-0", GROUP, SMALL, recorded=recorded, log_start=0, is_clean=False)
    assert log.end.end_index >= believed.end_index
