"""A pass over the files of a log does what the model does with lists, whole or not at all. What need not change is not
touched."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from protocol.records.batch import renew_crc
from protocol.records.builder import build_filler
from storage.batch_scan import BLOCK_BYTES, BytesMoved, UncleanableError
from storage.disk import MissingPathError
from storage.errors import CorruptLogError
from storage.log import Log
from storage.log_cleaning import CleaningTask, MapReady, PassOver, SegmentReady
from storage.log_types import LogConfig
from tests.simulator.disk import DiskFaults
from tests.simulator.loop import new_loop
from tests.storage.compaction.logs import (
    CONFIG,
    check_view,
    facts_of,
    log_of,
    run_pass,
    stored_in,
    task_of,
    write_history,
)
from tests.storage.compaction.model import (
    History,
    Replica,
    aborted_in,
    key_buffer,
)
from tests.storage.helpers import (
    InlineDisk,
    StopError,
    StoppingDisk,
    StoppingMemoryDisk,
    append,
    log_files,
    new_log,
    reopen,
)


@pytest.mark.parametrize("seed", range(12))
def test_a_pass_over_files_does_what_the_rules_say(disk: InlineDisk, seed: int) -> None:
    rng = random.Random(seed)
    history = write_history(rng)
    replica = history.replicas[0]
    log = log_of(disk, replica)
    key_count = rng.choice([3, 1000])
    for _ in range(3):
        task = task_of(log, replica, key_count)
        events = run_pass(log, task)
        replica.compact(key_count)
        assert stored_in(log) == replica.stored
        map_ready, over = next(x for x in events if isinstance(x, MapReady)), events[-1]
        assert isinstance(over, PassOver) and replica.counts is not None
        assert over.end_offset == map_ready.end_offset == replica.cleaned_end
        assert over.counts.bytes_out <= over.counts.bytes_in
        history.now_ms += 2000  # what has a horizon may go
    end = log.end
    log.close(is_clean=False)
    log = reopen(disk, CONFIG, recorded=end)
    assert stored_in(log) == replica.stored
    assert [segment.base_offset for segment in log.segments()] == replica.bases


def test_what_was_aborted_is_told_to_readers_of_what_is_left(disk: InlineDisk) -> None:
    """With an offset map that ends inside an aborted transaction, a part of its data stays."""
    history = History()
    replica = history.replica()
    history.write((b"a", b"1"), pid=1, is_transactional=True)
    history.write((b"b", b"1"), pid=1, is_transactional=True)
    history.roll()
    history.write((b"c", b"1"))
    history.write((b"d", b"1"))
    history.write((b"f", b"1"), pid=1, is_transactional=True)
    history.end(1, is_commit=False)
    history.roll()
    history.write((b"g", b"1"))
    log = log_of(disk, replica)
    task = task_of(log, replica, key_count=1)
    *_, over = run_pass(log, task)
    assert isinstance(over, PassOver)
    assert over.end_offset == 3
    assert log.aborted_between(3, log.end_offset) == aborted_in(replica.batches)
    run_pass(log, task_of(log, replica)._replace(first_dirty_offset=3))
    assert log.aborted_between(0, log.end_offset) == []


def test_a_segment_that_the_range_ends_in_stays_as_it_is(disk: InlineDisk) -> None:
    """The log start may lie in a segment that is not to be cleaned yet. What was aborted behind it, the pass is not
    told: its data would be taken for committed."""
    history = History()
    replica = history.replica()
    history.write((b"a", b"1"))
    history.roll()
    history.write((b"b", b"1"), pid=1, is_transactional=True)
    history.end(1, is_commit=True)
    start = history.end_offset
    history.write((b"a", b"2"), pid=2, is_transactional=True)
    history.end(2, is_commit=False)
    history.roll()
    history.write((b"z", b"1"))
    log = log_of(disk, replica)
    task = task_of(log, replica)._replace(first_dirty_offset=start, end_offset=start, aborted=[])
    before = stored_in(log)
    over = run_pass(log, task)[-1]
    assert stored_in(log) == before
    assert log.aborted_between(0, log.end_offset) == aborted_in(replica.batches)
    # What lies below the start in that segment is still sent to a new replica, and it was not cleaned.
    assert isinstance(over, PassOver) and over.end_offset == over.transaction_free_end == 1


def test_a_segment_of_which_nothing_changes_is_not_written(disk: InlineDisk) -> None:
    history = History()
    replica = history.replica()
    for key in (b"a", b"b"):
        for number in range(20):
            history.write((key + b"%d" % number, b"v" * 40))
        history.roll()
    history.write((b"a3", b"new"))
    history.roll()
    history.write((b"z", b""))
    log = log_of(disk, replica)
    before = [path.stat().st_ino for path in log_files(disk.root)]
    task = task_of(log, replica)._replace(segment_bytes=1)
    ready = [event for event in run_pass(log, task) if isinstance(event, SegmentReady)]
    assert [event.bases for event in ready] == [(0,)]
    after = [path.stat().st_ino for path in log_files(disk.root)]
    assert [old == new for old, new in zip(before, after, strict=True)] == [False, True, True, True]
    replica.compact()
    again = task_of(log, replica)._replace(segment_bytes=1)
    assert not [event for event in run_pass(log, again) if isinstance(event, SegmentReady)]


def test_a_segment_of_fillers_only_is_not_written_again(disk: InlineDisk) -> None:
    history = History()
    replica = history.replica()
    history.write((b"a", b"1"))
    history.write((b"a", b"2"))
    history.roll()
    history.write((b"a", b"3"))
    history.roll()
    history.write((b"z", b""))
    log = log_of(disk, replica)
    task = task_of(log, replica)._replace(segment_bytes=1)
    assert len([event for event in run_pass(log, task) if isinstance(event, SegmentReady)]) == 1
    assert stored_in(log)[0] == bytes(build_filler(0, 2, 3))
    again = task_of(log, replica)._replace(segment_bytes=1)
    events = [type(event) for event in run_pass(log, again)]
    assert [event for event in events if event is not BytesMoved] == [MapReady, PassOver]


def test_no_filler_spans_a_row(disk: InlineDisk) -> None:
    log = new_log(disk, CONFIG, term=1)
    for term in (1, 2, 3):
        if term > 1:
            log.append_row(term, 1, b"")
        append(log)
        append(log)
    log.roll()
    append(log)
    log.roll()
    append(log)
    log.flush()
    history = History()
    rules = history.replica().new_filter(history.replicas[0].key_map(0, 0))._rules
    task = CleaningTask(
        log.directory,
        facts_of(log),
        [(row.offset, row.term) for row in log.lineage.rows],
        0,
        21,
        rules._replace(log_last_offset=23),
        (),
        key_buffer(10),
        1,
        CONFIG.index_interval_bytes,
    )
    run_pass(log, task)
    headers = [header for header, _ in log.checked_batches(0)]
    assert [(header.base_offset, header.leader_epoch) for header in headers[:3]] == [(0, 1), (6, 2), (12, 3)]


def test_a_batch_that_is_larger_than_a_block(disk: InlineDisk) -> None:
    history = History()
    replica = history.replica()
    value = random.Random(1).randbytes(2 * BLOCK_BYTES)
    history.write((b"a", b"1"))
    history.write((b"a", value))
    history.write((b"b", value), (b"c", None))
    history.roll()
    history.write((b"b", b"1"))
    log = log_of(disk, replica, LogConfig(1 << 30, 1 << 40, 128))
    run_pass(log, task_of(log, replica))
    replica.compact()
    assert stored_in(log) == replica.stored


# -- damage


def some_log(disk: InlineDisk) -> tuple[Log, Replica]:
    replica = write_history(random.Random(5)).replicas[0]
    return log_of(disk, replica), replica


def damage(disk: InlineDisk, position: int, data: bytes) -> None:
    with log_files(disk.root)[0].open("r+b") as file:
        file.seek(position)
        file.write(data)


@pytest.mark.parametrize(
    ("position", "data"),
    [(7, b"\x05"), (11, b"\x00"), (8, b"\x7f"), (15, b"\x02"), (70, b"????")],
    ids=["base offset", "length", "huge length", "epoch", "payload"],
)
def test_corrupt_bytes_are_told_from_others(disk: InlineDisk, position: int, data: bytes) -> None:
    log, replica = some_log(disk)
    damage(disk, position, data)
    with pytest.raises(CorruptLogError):
        run_pass(log, task_of(log, replica))


def test_a_batch_that_nobody_can_read_is_no_corruption(disk: InlineDisk) -> None:
    history = History()
    replica = history.replica()
    history.write((b"a", b"1"))
    batch = bytearray(replica.segments[0][0])
    batch[61] = 0x7F  # the length of its record
    renew_crc(batch)
    replica.segments[0][0] = bytes(batch)
    history.roll()
    history.write((b"a", b"1"))
    log = log_of(disk, replica)
    task = task_of(log, History().replica())._replace(first_dirty_offset=0, end_offset=1)
    with pytest.raises(UncleanableError, match="the batch at 0 cannot be read"):
        run_pass(log, task)
    assert len(stored_in(log)) == 2


def test_a_file_that_is_too_short_is_corruption(disk: InlineDisk) -> None:
    log, replica = some_log(disk)
    task = task_of(log, replica)
    path = log_files(disk.root)[0]
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CorruptLogError, match="half a batch"):
        run_pass(log, task)


def test_a_segment_that_was_deleted_meanwhile_ends_the_pass(disk: InlineDisk) -> None:
    log, replica = some_log(disk)
    task = task_of(log, replica)
    Path(log_files(disk.root)[1]).unlink()
    with pytest.raises(MissingPathError):
        run_pass(log, task)


# -- deaths


def passed_until(disk: StoppingDisk | StoppingMemoryDisk, seed: int, step: int) -> tuple[bool, Log, Replica]:
    """Whether the pass was over before the disk's call number `step`."""
    replica = write_history(random.Random(seed), rounds=3).replicas[0]
    log = log_of(disk, replica)
    task = task_of(log, replica)
    disk.calls_left = step
    is_over = True
    try:
        run_pass(log, task)
    except StopError:
        is_over = False
    disk.calls_left = None
    return is_over, log, replica


def test_a_process_that_dies_at_any_call_leaves_each_segment_old_or_new(tmp_path: Path) -> None:
    step, is_over = 0, False
    while not is_over:
        disk = StoppingDisk(str(tmp_path / f"{step}"))
        is_over, log, replica = passed_until(disk, 3, step)
        recorded = log.end
        log = reopen(disk, CONFIG, recorded=recorded)
        check_view(log, replica)
        assert not [name for name in disk.list(log.directory) if name.startswith(".compact")]
        run_pass(log, task_of(log, replica))
        check_view(log, replica)
        step += 1
    assert step > 50, step


def test_a_loss_of_power_at_any_call_leaves_each_segment_old_or_new() -> None:
    step, is_over = 0, False
    while not is_over:
        loop = new_loop()
        disk = StoppingMemoryDisk("/data", loop, random.Random(step), DiskFaults())
        is_over, log, replica = passed_until(disk, 3, step)
        recorded = log.end
        disk.crash()
        log = reopen(disk, CONFIG, recorded=recorded)
        check_view(log, replica)
        run_pass(log, task_of(log, replica))
        check_view(log, replica)
        loop.close()
        step += 1
    assert step > 50, step
