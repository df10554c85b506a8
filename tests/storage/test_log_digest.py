"""A digest of the files of a log."""

from __future__ import annotations

import random
from typing import Any

import pytest

from storage.batch_scan import BytesMoved
from storage.compaction.view_digest import OffsetRange, RangeDigest
from storage.disk import MissingPathError
from storage.errors import CorruptLogError
from storage.log import Log
from storage.log_digest import DigestReady, DigestTask, digest_log
from storage.segment_files import segment_path
from tests.storage.compaction.logs import facts_of, log_of, run_pass, task_of, write_history
from tests.storage.compaction.model import History, aborted_in, key_buffer
from tests.storage.helpers import InlineDisk

SEEDS = range(5)


def task_for(log: Log, history: History, **changes: Any) -> DigestTask:
    view = OffsetRange(0, history.last_stable_offset)
    task = DigestTask(
        log.directory,
        facts_of(log),
        [(row.offset, row.term) for row in log.lineage.rows],
        view,
        view,
        True,
        aborted_in(history.replicas[0].batches),
        key_buffer(1000),
        b"salt",
    )
    return task._replace(**changes)


def digest_of(log: Log, history: History, **changes: Any) -> RangeDigest:
    *moved, last = digest_log(log.disk, task_for(log, history, **changes))
    assert all(isinstance(event, BytesMoved) and event.byte_count > 0 for event in moved)
    assert isinstance(last, DigestReady)
    return last.digest


@pytest.mark.parametrize("seed", SEEDS)
def test_a_pass_changes_nothing_of_the_digest_whatever_the_map_holds(disk: InlineDisk, seed: int) -> None:
    history = write_history(random.Random(seed))
    log = log_of(disk, history.replicas[0])
    before = digest_of(log, history)
    assert before.count == len(history.view())
    assert digest_of(log, history, map_bytes=key_buffer(1)) == before
    assert run_pass(log, task_of(log, history.replicas[0]))
    assert digest_of(log, history) == before
    assert digest_of(log, history, map_bytes=1) == before
    part = OffsetRange(3, history.last_stable_offset - 2)
    assert digest_of(log, history, focus=part).counts == before.counts[3:-2]
    log.close(is_clean=False)


def test_a_map_that_does_not_hold_all_keys_takes_more_readings(disk: InlineDisk) -> None:
    history = write_history(random.Random(1))
    log = log_of(disk, history.replicas[0])

    def bytes_read(map_bytes: int) -> int:
        events = digest_log(disk, task_for(log, history, map_bytes=map_bytes))
        return sum(event.byte_count for event in events if isinstance(event, BytesMoved))

    assert bytes_read(key_buffer(1)) > bytes_read(key_buffer(1000))
    log.close(is_clean=False)


def test_every_batch_counts_where_nothing_is_compacted(disk: InlineDisk) -> None:
    history = write_history(random.Random(1))
    log = log_of(disk, history.replicas[0])
    digest = digest_of(log, history, is_by_key=False)
    below = [h for stored in log.batches(0) if (h := stored.header).base_offset < history.last_stable_offset]
    assert (digest.count, digest.is_rewritten) == (len(below), False)
    run_pass(log, task_of(log, history.replicas[0]))
    assert digest_of(log, history, is_by_key=False).is_rewritten
    log.close(is_clean=False)


def test_what_lies_above_the_view_is_not_read(disk: InlineDisk) -> None:
    """It may be cut off at any time."""
    history = write_history(random.Random(1))
    log = log_of(disk, history.replicas[0])
    stored = list(log.batches(0))[-3]
    end = stored.header.base_offset
    expected = {by_key: digest_of(log, history, is_by_key=by_key, **_until(end)) for by_key in (True, False)}
    file = disk.open(stored.file.path)
    file.truncate(stored.position)
    file.close()
    for by_key, digest in expected.items():
        assert digest_of(log, history, is_by_key=by_key, **_until(end)) == digest
    with pytest.raises(CorruptLogError):
        digest_of(log, history, is_by_key=False)
    log.close(is_clean=False)


def _until(end: int) -> dict[str, OffsetRange]:
    return {"view": OffsetRange(0, end), "focus": OffsetRange(0, end)}


@pytest.mark.parametrize("is_by_key", [True, False])
def test_corrupt_bytes_and_missing_files_are_told_apart(disk: InlineDisk, is_by_key: bool) -> None:
    history = write_history(random.Random(1))
    log = log_of(disk, history.replicas[0])
    stored = next(iter(log.batches(0)))
    file = disk.open(stored.file.path)
    byte = bytes(file.read(stored.position + 70, 1))[0]
    file.write_at(stored.position + 70, bytes([byte ^ 1]))
    file.close()
    with pytest.raises(CorruptLogError):
        digest_of(log, history, is_by_key=is_by_key)
    disk.unlink(segment_path(log.directory, 0))
    with pytest.raises(MissingPathError):
        digest_of(log, history, is_by_key=is_by_key)
    log.close(is_clean=False)
