"""Reading a log in steps, while compaction or retention takes away what is being read."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest

from storage import remover
from storage.disk import DiskFailedError
from storage.file_disk import FileDisk
from storage.producer_snapshot import Snapshot, load_producers, write_snapshot
from storage.segment_files import DELETED_SUFFIX, deleted_path
from storage.short_walks import BATCHES_PER_WALK, checked_batches_in_short_walks
from tests.storage.compaction.logs import log_of, run_pass, task_of
from tests.storage.compaction.model import History
from tests.storage.helpers import InlineDisk

BATCHES = 800


def test_what_has_taken_the_place_of_a_segment_is_read_on(
    disk: InlineDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its old file is cut step by step. Who read all of the log in one walk would read in that."""
    history = History()
    replica = history.replica()
    for number in range(BATCHES):
        history.write((b"%d" % number, b"v" * 1000))
    history.roll()
    history.write((b"0", b"newer"))
    history.roll()
    history.write((b"z", b""))
    log = log_of(disk, replica)

    gone = threading.Event()
    unlink = os.unlink

    def note(path: Any, **options: Any) -> None:
        unlink(path, **options)
        if str(path).endswith(DELETED_SUFFIX):
            gone.set()

    monkeypatch.setattr(remover, "SHRINK_STEP_BYTES", 10_000)
    monkeypatch.setattr("os.unlink", note)
    one_walk = log.checked_batches(0)
    next(one_walk)
    batches = checked_batches_in_short_walks(log, 0, log.end_offset)
    seen = [next(batches)[0].base_offset for _ in range(BATCHES_PER_WALK)]
    run_pass(log, task_of(log, replica)._replace(segment_bytes=1))
    assert gone.wait(10)
    seen += [header.base_offset for header, _ in batches]
    assert seen == list(range(log.end_offset))
    with pytest.raises(DiskFailedError):
        list(one_walk)


@pytest.mark.parametrize("seen_before", [1, BATCHES_PER_WALK])
@pytest.mark.parametrize("is_all", [False, True])
def test_what_is_deleted_meanwhile_is_passed_over(disk: InlineDisk, seen_before: int, is_all: bool) -> None:
    """Within a walk, and between two. A healthy log was taken for a corrupt one."""
    history = History()
    replica = history.replica()
    for _ in range(4):
        for number in range(20):
            history.write((b"%d" % number, b"v" * 100))
        history.roll()
    history.write((b"z", b""))
    log = log_of(disk, replica)
    end_offset = log.end_offset
    batches = checked_batches_in_short_walks(log, 0, end_offset)
    seen = [next(batches)[0].base_offset for _ in range(seen_before)]
    start_offset = end_offset if is_all else 60
    write_snapshot(log, Snapshot.of(load_producers(log, start_offset)), end_offset)
    for segment in log._segments:
        segment.release_file()  # as those are that nobody has read for a while
    log.roll()
    log.set_start_offset(start_offset)
    log.delete_segments(start_offset)
    seen += [header.base_offset for header, _ in batches]
    kept = range(start_offset, end_offset)
    assert seen == sorted({*seen, *kept})
    assert len(seen) >= min(end_offset, BATCHES_PER_WALK), "a walk reads on in what it has found"


def test_a_segment_that_is_replaced_again_leaves_the_bytes_of_the_one_before_to_its_readers(
    tmp_path: Path,
) -> None:
    disk = FileDisk(str(tmp_path), lambda callback: callback(), remove_delay_s=1000.0)
    contents = []
    for content in (b"first", b"second"):
        path = f"{tmp_path}/0.log"
        Path(path).write_bytes(content)
        disk.rename(path, deleted_path(disk, path))
        contents.append(content)
    assert sorted(each.read_bytes() for each in tmp_path.glob(f"*{DELETED_SUFFIX}")) == contents
    disk.close()
