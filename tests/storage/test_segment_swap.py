"""One segment takes the place of some: whole or not at all, whenever the process or the power ends, and unseen by
those who read."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from protocol.records.batch import BatchHeader, parse_header
from protocol.records.builder import build_filler
from storage.aborted_index import AbortedIndex, AbortedTransaction
from storage.errors import CorruptLogError
from storage.log import Log
from storage.log_types import FlushedEnd
from storage.segment_swap import COMPACTED_NAME, SegmentBuild, commit_swap
from tests.simulator.disk import DiskFaults
from tests.simulator.loop import new_loop
from tests.storage.helpers import (
    SMALL,
    InlineDisk,
    StopError,
    StoppingDisk,
    StoppingMemoryDisk,
    append,
    fill,
    new_log,
    reopen,
    segment_bases,
    stored_headers,
)


def some_log(disk: StoppingDisk | StoppingMemoryDisk | InlineDisk) -> Log:
    """It has a dozen segments, and is durable."""
    log = new_log(disk)
    fill(log, random.Random(4), 100)
    log.flush()
    assert len(segment_bases(log)) > 8
    return log


def swap(log: Log, bases: list[int], end_offset: int) -> None:
    """Only the last batch of these segments stays."""
    *gone, last = [batch for batch in log.batches(bases[0]) if batch.header.base_offset < end_offset]
    data = bytes(last.view())
    build = SegmentBuild(log.disk, log.directory, bases, SMALL.index_interval_bytes)
    if gone:
        filler = build_filler(bases[0], last.header.base_offset, last.header.leader_epoch)
        build.append([filler], [parse_header(filler)])
    build.append([data], [last.header])
    build.finish(end_offset, AbortedIndex())
    log.swap(bases, AbortedIndex())


def whole(log: Log) -> list[BatchHeader]:
    """All batches, each verified."""
    return [header for header, _ in log.checked_batches(0)]


def expected_after(before: list[BatchHeader], bases: list[int], end_offset: int) -> list[int]:
    """Base offsets."""
    replaced = [header for header in before if bases[0] <= header.base_offset < end_offset]
    return [
        *(header.base_offset for header in before if header.base_offset < bases[0]),
        *sorted({bases[0], replaced[-1].base_offset}),
        *(header.base_offset for header in before if header.base_offset >= end_offset),
    ]


@pytest.mark.parametrize(("first", "count"), [(0, 1), (0, 3), (2, 4), (5, 1)])
def test_a_segment_takes_the_place_of_its_neighbours(disk: InlineDisk, first: int, count: int) -> None:
    log = some_log(disk)
    before, all_bases = whole(log), segment_bases(log)
    bases, end_offset = all_bases[first : first + count], all_bases[first + count]
    swap(log, bases, end_offset)
    wanted = expected_after(before, bases, end_offset)
    assert [header.base_offset for header in whole(log)] == wanted
    assert segment_bases(log) == all_bases[: first + 1] + all_bases[first + count :]
    append(log)
    log.flush()
    end, headers = log.end, whole(log)
    log.close(is_clean=True)
    log = reopen(disk, recorded=end, is_clean=True)
    assert whole(log) == headers
    assert [header.base_offset for header in headers[:-1]] == wanted


def check_reopened(
    disk: StoppingDisk | StoppingMemoryDisk, recorded: FlushedEnd, before: list[BatchHeader], after: list[int]
) -> bool:
    """Whether the swap is done."""
    log = reopen(disk, recorded=recorded)
    offsets = [header.base_offset for header in whole(log)]
    is_done = offsets == after
    assert is_done or whole(log) == before
    assert not [name for name in disk.list(log.directory) if name.startswith(".compact")]
    bases = segment_bases(log)
    swap(log, bases[:-1], bases[-1])
    append(log)
    log.flush()
    headers, end = whole(log), log.end
    log.close(is_clean=False)
    assert whole(reopen(disk, recorded=end)) == headers
    return is_done


def stopped_swap(
    disk: StoppingDisk | StoppingMemoryDisk, step: int
) -> tuple[bool, Log, list[BatchHeader], list[int]]:
    """Whether the swap was over at this step, the log, its batches before the swap, and their base offsets after it."""
    log = some_log(disk)
    before, bases = whole(log), segment_bases(log)
    is_over = False
    disk.calls_left = step
    try:
        swap(log, bases[1:5], bases[5])
        is_over = True
    except StopError:
        pass
    disk.calls_left = None
    return is_over, log, before, expected_after(before, bases[1:5], bases[5])


def test_a_process_that_ends_at_any_step_leaves_the_old_log_or_the_new_one(tmp_path: Path) -> None:
    step, outcomes = 0, []
    is_over = False
    while not is_over:
        disk = StoppingDisk(str(tmp_path / str(step)))
        is_over, log, before, after = stopped_swap(disk, step)
        end = log.end
        log.close(is_clean=False)
        outcomes.append(check_reopened(disk, end, before, after))
        disk.close()
        step += 1
    assert outcomes == sorted(outcomes), "from one step on it is done"
    assert outcomes.index(True) > 5
    assert outcomes.count(True) > 10


def swap_all_but_the_first_batch(log: Log, bases: list[int], end_offset: int) -> None:
    """The segment has indexes of its own: entries, and an aborted transaction."""
    first, *kept = [batch for batch in log.batches(bases[0]) if batch.header.base_offset < end_offset]
    aborted = AbortedIndex()
    aborted.add(AbortedTransaction(7, bases[0], end_offset - 1, end_offset))
    filler = build_filler(bases[0], first.header.next_offset, first.header.leader_epoch)
    build = SegmentBuild(log.disk, log.directory, bases, SMALL.index_interval_bytes)
    build.append([filler], [parse_header(filler)])
    build.append([bytes(batch.view()) for batch in kept], [batch.header for batch in kept])
    build.finish(end_offset, aborted)
    log.swap(bases, aborted)


def index_files(log: Log, base_offset: int) -> dict[str, bytes]:
    names = (f"{base_offset:020}{suffix}" for suffix in (".index", ".timeindex", ".txnindex"))
    return {
        name: Path(log.directory, name).read_bytes() for name in names if Path(log.directory, name).exists()
    }


def swap_that_died(disk: StoppingDisk, step: int | None) -> tuple[bool, dict[str, bytes], dict[str, bytes]]:
    """Whether it was over at this step, and the index files of the segment before it and after the next start."""
    log = some_log(disk)
    bases, end = segment_bases(log), log.end
    before = index_files(log, bases[1])
    is_over = False
    disk.calls_left = step
    try:
        swap_all_but_the_first_batch(log, bases[1:5], bases[5])
        is_over = True
    except StopError:
        pass
    disk.calls_left = None
    log.close(is_clean=False)
    log = reopen(disk, recorded=end)
    after = index_files(log, bases[1])
    log.close(is_clean=False)
    disk.close()
    return is_over, before, after


def test_a_process_that_ends_at_any_step_leaves_the_indexes_of_the_segment(tmp_path: Path) -> None:
    """Also if some of them are in place already: the next start must not take them for those of the old segment."""
    _, before, wanted = swap_that_died(StoppingDisk(str(tmp_path / "whole")), None)
    assert len(wanted) == len(before) == 3
    assert not set(wanted.values()) & set(before.values())
    step, outcomes = 0, []
    is_over = False
    while not is_over:
        is_over, _, found = swap_that_died(StoppingDisk(str(tmp_path / str(step))), step)
        assert found in (before, wanted), step
        outcomes.append(found == wanted)
        step += 1
    assert outcomes == sorted(outcomes), "from one step on it is done"
    assert outcomes.count(True) > 10


@pytest.mark.parametrize("seed", range(6))
def test_a_loss_of_power_at_any_step_leaves_the_old_log_or_the_new_one(seed: int) -> None:
    step, outcomes = 0, set()
    is_over = False
    while not is_over:
        disk = StoppingMemoryDisk("/n1", new_loop(), random.Random(seed * 1000 + step), DiskFaults())
        is_over, log, before, after = stopped_swap(disk, step)
        disk.crash()
        outcomes.add(check_reopened(disk, log.end, before, after))
        step += 1
    assert outcomes == {False, True}
    assert step > 30


def test_who_reads_goes_on_with_the_segments_that_were_there(disk: InlineDisk) -> None:
    log = some_log(disk)
    before, bases = whole(log), segment_bases(log)
    walk = log.checked_batches(0)
    seen = [next(walk)[0]]
    piece = log.read(bases[2], 10_000, below_offset=log.end_offset)
    assert piece is not None
    data = bytes(piece.view())
    swap(log, bases[:6], bases[6])
    seen += [header for header, _ in walk]
    assert seen == before
    assert bytes(piece.view()) == data
    assert stored_headers(log) != before


def test_a_list_of_segments_that_rotted_is_corruption(disk: InlineDisk) -> None:
    log = some_log(disk)
    bases = segment_bases(log)
    build = SegmentBuild(disk, log.directory, bases[:2], SMALL.index_interval_bytes)
    filler = build_filler(0, bases[2], log.lineage.last_term)
    build.append([filler], [parse_header(filler)])
    build.finish(bases[2], AbortedIndex())
    commit_swap(disk, log.directory)
    end = log.end
    log.close(is_clean=False)
    path = Path(log.directory, COMPACTED_NAME, "replaced")
    path.write_bytes(path.read_bytes().replace(b"%d" % bases[1], b"%d" % bases[3]))
    with pytest.raises(CorruptLogError):
        reopen(disk, recorded=end)


def test_no_hole_is_built(disk: InlineDisk) -> None:
    log = some_log(disk)
    bases = segment_bases(log)
    build = SegmentBuild(disk, log.directory, bases[:2], SMALL.index_interval_bytes)
    filler = build_filler(1, bases[2], log.lineage.last_term)
    with pytest.raises(AssertionError, match="a hole at 0"):
        build.append([filler], [parse_header(filler)])
