from __future__ import annotations

import os
import random
import tracemalloc

import pytest

from protocol.records.batch import Compression, parse_header
from protocol.records.builder import NewRecord, build_batch
from protocol.records.compression import PIECE_BYTES
from protocol.records.walk import STEP_BYTES
from storage.disk import DiskFullError
from storage.errors import CorruptLogError
from storage.log import Log
from storage.log_types import FlushedEnd, LogConfig, StoredSegment
from storage.producer_snapshot import ensure_snapshot
from storage.retention import retention_start
from tests.storage.helpers import (
    ROW_KIND,
    InlineDisk,
    append,
    append_filler,
    batch_at,
    delete_below,
    fill,
    fresh_disk,
    log_files,
    looked_up,
    new_log,
    reopen,
    stored_headers,
)


def read_all(log: Log, max_bytes: int, below_offset: int) -> bytes:
    data, offset = b"", log.start_offset
    while (slice_ := log.read(offset, max_bytes, below_offset=below_offset)) is not None:
        assert slice_.next_offset > offset
        data += bytes(slice_.view())
        offset = slice_.next_offset
    return data


def test_index_is_offset_plus_rows_before_or_at(disk: InlineDisk) -> None:
    log = new_log(disk)
    append(log, count=3)
    row = log.append_row(2, ROW_KIND, b"")
    assert (row.index, row.offset, log.end_index) == (5, 3, 6)
    append(log, count=1)
    assert log.lineage.index_of(2) == 4
    assert log.lineage.index_of(3) == 6
    assert [log.lineage.term_at_index(i) for i in range(7)] == [-1, 1, 1, 1, 1, 2, 2]
    assert [log.lineage.offset_of_index(i) for i in range(8)] == [0, 0, 0, 1, 2, 3, 3, 4]


@pytest.mark.parametrize("founding_term", [-1, 0])
def test_offset_for_leader_epoch_answers_log_end_for_the_current_epoch(
    disk: InlineDisk, founding_term: int
) -> None:
    """Older directories were founded in term 0."""
    log = new_log(disk, founding_term=founding_term)
    append(log, count=3)
    log.append_row(4, ROW_KIND, b"")
    append(log, count=2)
    lookup = log.lineage.epoch_end_offset
    assert lookup(4, log.end_offset) == (4, 5)
    assert lookup(3, log.end_offset) == (1, 3)
    assert lookup(1, log.end_offset) == (1, 3)
    assert lookup(0, log.end_offset) == ((0, 0) if founding_term == 0 else (-1, -1))
    assert lookup(5, log.end_offset) == (-1, -1)
    assert lookup(-1, log.end_offset) == (-1, -1)


def test_nothing_ends_in_the_term_in_which_the_group_was_founded(disk: InlineDisk) -> None:
    """The elections of terms 0 to 2 were won by nobody."""
    log = new_log(disk, term=3)
    append(log, count=2)
    lookup = log.lineage.epoch_end_offset
    assert lookup(3, log.end_offset) == (3, 2)
    for epoch in (2, 0, -1, -2):
        assert lookup(epoch, log.end_offset) == (-1, -1)


@pytest.mark.parametrize("seed", range(8))
def test_reads_give_whole_batches_for_any_limit_and_bound(disk: InlineDisk, seed: int) -> None:
    rng = random.Random(seed)
    log = new_log(disk)
    fill(log, rng, 80)
    headers = stored_headers(log)
    assert len(log_files(disk.root)) > 3
    log._segments[-1].file.trim()
    whole = b"".join(path.read_bytes() for path in log_files(disk.root))
    assert read_all(log, 300, log.end_offset) == whole
    for _ in range(200):
        offset = rng.randrange(log.end_offset)
        below = rng.randrange(log.end_offset + 1)
        max_bytes = rng.choice([1, 100, 500, 5000])
        at_least_one = rng.random() < 0.5
        eligible = [h for h in headers if h.last_offset >= offset and h.last_offset < below]
        given = log.read(offset, max_bytes, below_offset=below, at_least_one=at_least_one)
        if not eligible or (eligible[0].size_bytes > max_bytes and not at_least_one):
            assert given is None
            continue
        assert given is not None
        assert given.first_offset == eligible[0].base_offset
        view, position, got = given.view(), 0, []
        while position < len(view):
            got.append(parse_header(view, position))
            position += got[-1].size_bytes
        assert got == eligible[: len(got)]
        assert given.next_offset == got[-1].last_offset + 1
        assert len(view) <= max_bytes or len(got) == 1
        following = eligible[len(got) : len(got) + 1]
        same_segment = following and following[0].base_offset not in {s.base_offset for s in log._segments}
        if same_segment:
            assert len(view) + following[0].size_bytes > max_bytes, "a batch that fits was left out"


def test_a_range_for_a_follower_stops_at_every_row(disk: InlineDisk) -> None:
    log = new_log(disk)
    fill(log, random.Random(1), 6)
    log.append_row(2, ROW_KIND, b"second")
    fill(log, random.Random(2), 30)
    log.append_row(3, ROW_KIND, b"third")
    index, rows, offsets = 0, [], 0
    while index < log.end_index:
        part = log.read_range(index, log.end_index, 700)
        assert part.start_index == index < part.end_index
        if part.data is not None:
            assert part.data.first_offset == offsets
            offsets = part.data.next_offset
        if part.row is not None:
            assert part.row.index == part.end_index - 1
            rows.append(part.row)
        index = part.end_index
    assert rows == log.lineage.rows
    assert offsets == log.end_offset


def test_rolls_before_the_write_by_size_and_by_time(disk: InlineDisk) -> None:
    log = new_log(disk, LogConfig(segment_bytes=1000, segment_ms=500))
    fill(log, random.Random(3), 12)
    log._segments[-1].file.trim()
    assert all(path.stat().st_size <= 1000 for path in log_files(disk.root))
    count = len(log._segments)
    append(log, timestamp_ms=log._segments[-1].max_timestamp[0] + 100, value_bytes=0, count=1)
    append(log, timestamp_ms=10_000, value_bytes=0, count=1)
    assert len(log._segments) > count
    assert log.active_segment_base == log.end_offset - 1
    assert log.is_due_to_roll(11_000)


def test_a_full_disk_leaves_the_log_as_it_was(disk: InlineDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    log = new_log(disk)
    append(log)
    size, end = log.size_bytes, log.end

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("os.pwrite", full)
        with pytest.raises(DiskFullError):
            append(log)
    assert (log.size_bytes, log.end) == (size, end)
    append(log)
    assert len(stored_headers(log)) == 2


def test_an_append_out_of_place_is_an_assertion(disk: InlineDisk) -> None:
    log = new_log(disk)
    append(log)
    for offset, epoch in ((2, 1), (4, 1), (3, 2)):
        batch = batch_at(offset, epoch)
        with pytest.raises(AssertionError):
            log.append_batches([batch], [parse_header(batch)])


def test_a_row_is_durable_before_a_batch_after_it(disk: InlineDisk) -> None:
    log = new_log(disk)
    log.append_row(2, ROW_KIND, b"")
    assert log.lineage.flushed_count == 2
    append(log)
    assert log.lineage.flushed_count == 3


def test_flush_tickets_name_the_lineage_first_and_raise_the_end_when_finished(disk: InlineDisk) -> None:
    log = new_log(disk)
    append(log)
    log.append_row(2, ROW_KIND, b"")
    ticket = log.begin_flush()
    assert [file.path.rpartition("/")[2] for file in ticket.files] == ["lineage", "0" * 20 + ".log"]
    append(log)
    assert log.flushed_end == FlushedEnd(2, 2)
    log.finish_flush(ticket)
    assert log.flushed_end == FlushedEnd(6, 3)
    assert log.dirty()


def test_a_ticket_from_before_a_truncation_is_void(disk: InlineDisk) -> None:
    log = new_log(disk)
    append(log)
    append(log)
    ticket = log.begin_flush()
    log.truncate(5, known_commit=0)
    log.append_row(2, ROW_KIND, b"")
    log.finish_flush(ticket)
    assert log.flushed_end == FlushedEnd(5, 2)


def test_truncation_drops_rows_batches_and_segments(disk: InlineDisk) -> None:
    log = new_log(disk)
    fill(log, random.Random(4), 20)
    kept = stored_headers(log)
    cut_offset, cut_index = log.end_offset, log.end_index
    log.append_row(2, ROW_KIND, b"")
    fill(log, random.Random(5), 40)
    log.append_row(3, ROW_KIND, b"")
    log.truncate(cut_index, known_commit=cut_index)
    assert (log.end_index, log.end_offset, log.lineage.last_term) == (cut_index, cut_offset, 1)
    assert log.flushed_end == log.end
    assert stored_headers(log) == kept
    log.append_row(4, ROW_KIND, b"")
    fill(log, random.Random(6), 40)
    end, headers = log.end, stored_headers(log)
    log.close(is_clean=False)
    log = reopen(disk, recorded=FlushedEnd(cut_index, 2))
    assert (log.end, stored_headers(log)) == (end, headers)


def test_truncation_below_the_known_commit_is_an_assertion(disk: InlineDisk) -> None:
    log = new_log(disk)
    append(log)
    with pytest.raises(AssertionError):
        log.truncate(2, known_commit=5)


def test_a_filler_survives_a_restart_and_is_read_from_any_offset_inside(disk: InlineDisk) -> None:
    log = new_log(disk)
    filler = append_filler(log, 30)
    log.append_row(2, ROW_KIND, b"")
    after = append(log)
    log.flush()
    end = log.end
    log.close(is_clean=False)
    log = reopen(disk, recorded=end)
    assert log.end == end == FlushedEnd(36, 3)
    assert stored_headers(log) == [filler, after]
    found = log.read(13, 1000, below_offset=30)
    assert found is not None and (found.first_offset, found.next_offset) == (0, 30)
    part = log.read_range(15, end.end_index, 1000)
    assert part.data is not None and part.data.first_offset == 0
    assert part.row is not None and part.end_index == 33
    assert log.batch_across(13) == filler
    assert log.batch_across(30) is None


def start_by_retention(
    log: Log, now_ms: int, retention_ms: int, retention_bytes: int, up_to_offset: int
) -> int:
    return retention_start(
        log.segments(),
        log.start_offset,
        now_ms=now_ms,
        retention_ms=retention_ms,
        retention_bytes=retention_bytes,
        up_to_offset=up_to_offset,
    )


def test_a_segment_of_unknown_age_goes_by_time_once_one_behind_it_does() -> None:
    segments = [StoredSegment(0, 10, 1, -1), StoredSegment(10, 20, 1, 500), StoredSegment(20, 30, 1, -1)]

    def start(now_ms: int) -> int:
        return retention_start(
            segments, 0, now_ms=now_ms, retention_ms=100, retention_bytes=-1, up_to_offset=30
        )

    assert (start(600), start(601)) == (0, 20)


def test_retention_keeps_no_segment_open(disk: InlineDisk) -> None:
    """It asks all of them after a restart: descriptors are fewer than segments of a node."""
    log = new_log(disk)
    for _ in range(40):
        append(log, value_bytes=200)
    log.flush()
    end = log.flushed_end
    log.close(is_clean=True)
    log = reopen(disk, recorded=end, is_clean=True)
    assert len(log._segments) > 10
    before = len(os.listdir("/dev/fd"))
    assert start_by_retention(log, 10**15, -1, -1, log.end_offset) == 0
    assert len(os.listdir("/dev/fd")) == before
    assert len(stored_headers(log)) == 40


def test_retention_deletes_whole_segments_below_the_start(disk: InlineDisk) -> None:
    log = new_log(disk)
    fill(log, random.Random(8), 60)
    log.flush()
    size, last = log.size_bytes, log._segments[-1]
    start = start_by_retention(log, 0, -1, size - log._segments[0].size_bytes, log.end_offset)
    assert start == log._segments[1].base_offset
    assert (
        start_by_retention(log, 10**6, 1000, -1, log._segments[2].base_offset) == log._segments[2].base_offset
    )
    start = start_by_retention(log, 10**6, 1000, -1, log.end_offset)
    assert start == log.end_offset
    log.roll()
    delete_below(log, start, log.end_offset)
    assert (log.size_bytes, log.start_offset) == (0, start)
    assert [segment.base_offset for segment in log._segments] == [start]
    assert last.base_offset < start
    end = log.end
    log.close(is_clean=False)
    log = reopen(disk, recorded=end, log_start=start)
    assert (log.start_offset, log.end) == (start, end)


def test_a_slice_outlives_its_segment(disk: InlineDisk) -> None:
    log = new_log(disk)
    header = append(log)
    slice_ = log.read(0, 1000, below_offset=3)
    assert slice_ is not None
    log.flush()
    log.roll()
    delete_below(log, 3, high_watermark=3)
    assert [segment.base_offset for segment in log._segments] == [3]
    assert parse_header(slice_.view()) == header


def test_a_log_may_begin_inside_a_batch_and_keep_what_is_below_for_a_while(disk: InlineDisk) -> None:
    """DeleteRecords names any offset. Only what is above can be read; the bytes go by whole segments."""
    log = new_log(disk)
    fill(log, random.Random(8), 60)
    log.flush()
    first, second = log.first_stored_offset, log._segments[1].base_offset
    inside = next(batch.header for batch in log.batches(second + 1) if batch.header.last_offset_delta)
    start = inside.base_offset + 1
    assert start > second
    for offset in (1, second - 1):
        delete_below(log, offset, log.end_offset)
        assert (log.start_offset, log.first_stored_offset, log.install_offset) == (offset, first, 0)
    delete_below(log, start, log.end_offset)
    assert log.first_stored_offset == log.whole_segments_end(start) == log.install_offset
    assert log.whole_segments_end(0) == log.install_offset, (
        "a majority may lag behind what is deleted here already"
    )
    assert log.snapshot_offsets() == [log.install_offset]
    assert log.whole_segments_end(1) == log.install_offset, "of what is gone already nothing is left to go"
    read, kept = log.read(start, 1, below_offset=log.end_offset), log.install_offset
    assert read is not None and parse_header(read.view()) == inside
    end = log.end
    log.close(is_clean=False)
    log = reopen(disk, recorded=end, log_start=start)
    assert (log.start_offset, log.install_offset, log.end) == (start, kept, end)
    log.close(is_clean=False)


def test_a_deletion_that_was_cut_short_is_finished_by_the_next_start(disk: InlineDisk) -> None:
    """The snapshot is durable first, so whatever of the segments below it is left goes."""
    log = new_log(disk)
    fill(log, random.Random(8), 60)
    log.flush()
    end, third = log.end, log._segments[2].base_offset
    start = third + 1
    log.set_start_offset(start)
    ensure_snapshot(log, third, log.end_offset)
    log.close(is_clean=False)
    log = reopen(disk, recorded=end, log_start=start)
    assert log.first_stored_offset == log.install_offset == third
    log.close(is_clean=False)


def test_finds_offsets_by_timestamp(disk: InlineDisk) -> None:
    log = new_log(disk)
    rng = random.Random(9)
    times: list[int] = []
    for _ in range(60):
        at_ms = rng.randrange(1000, 100_000)
        header = append(log, timestamp_ms=at_ms, count=rng.randint(1, 4))
        times.extend(at_ms + i for i in range(header.last_offset_delta + 1))
    for below in (log.end_offset, log.end_offset // 2):
        for wanted in [0, *rng.sample(times, 20), 200_000]:
            expected = next((o for o, t in enumerate(times[:below]) if t >= wanted), None)
            found = looked_up(log.offset_for_timestamp(wanted, below))
            assert (found.offset if found else None) == expected
    youngest = max(times)
    found = looked_up(log.max_timestamp_offset(log.end_offset))
    assert found is not None
    assert (found.timestamp_ms, found.offset) == (youngest, times.index(youngest))
    bound = next(h.base_offset for h in stored_headers(log) if h.base_offset > 40)
    found = looked_up(log.max_timestamp_offset(bound))
    assert found is not None and found.timestamp_ms == max(times[:bound])


def test_a_time_is_looked_up_in_steps_with_little_memory(disk: InlineDisk) -> None:
    """40 KB of zstd hold a hundred records of 400 KB."""
    log = new_log(disk)
    records = [NewRecord(None, bytes(400_000), 1000 + number) for number in range(100)]
    batch = build_batch(records, leader_epoch=log.lineage.last_term, compression=Compression.ZSTD)
    log.append_batches([batch], [parse_header(batch)])
    for lookup in (log.offset_for_timestamp(1090, 100), log.offset_for_timestamp(1010, 100)):
        tracemalloc.start()
        try:
            steps = 0
            while True:
                next(lookup)
                steps += 1
        except StopIteration as end:
            assert tracemalloc.get_traced_memory()[1] < 2_000_000
            found = end.value
        finally:
            tracemalloc.stop()
        # It ends at the record.
        wanted_bytes = found.offset * 400_000
        assert wanted_bytes <= steps * 128 * 1024 + 400_000
        assert steps * min(STEP_BYTES, PIECE_BYTES) <= wanted_bytes + 1_000_000
        assert found.timestamp_ms == 1000 + found.offset
    log.close(is_clean=True)


def test_the_youngest_of_a_log_that_is_being_written_to_is_looked_for_near_its_end(disk: InlineDisk) -> None:
    """Not by a walk over a segment of 1 GiB: that was the end of a leadership."""
    log = new_log(disk, LogConfig(index_interval_bytes=300))
    headers = [append(log, timestamp_ms=1000 + 10 * i) for i in range(400)]
    (segment,) = log._segments
    for header in (headers[-1], headers[200]):
        begin = segment.largest_timestamp_before(header.base_offset)
        assert header.base_offset - 15 < begin < header.base_offset
        found = looked_up(log.max_timestamp_offset(header.base_offset))
        assert found is not None and found.offset == header.base_offset - 1


def test_indexes_read_from_files_answer_like_those_in_memory(disk: InlineDisk) -> None:
    log = new_log(disk, LogConfig(segment_bytes=20_000, index_interval_bytes=300))
    fill(log, random.Random(10), 300)
    before = [(s.end_offset, s.max_timestamp, s.index.encode()) for s in log._segments]
    assert any(len(s.index) > 3 for s in log._segments)
    log.close(is_clean=True)
    log = reopen(disk, LogConfig(segment_bytes=20_000, index_interval_bytes=300), is_clean=True)
    assert [(s.end_offset, s.max_timestamp, s.index.encode()) for s in log._segments] == before
    for segment in log._segments:
        segment.delete_index_files()
    log.close(is_clean=False)
    log = reopen(disk, LogConfig(segment_bytes=20_000, index_interval_bytes=300), is_clean=True)
    assert [(s.end_offset, s.max_timestamp, s.index.encode()) for s in log._segments] == before


def test_a_corrupt_index_changes_no_answer(disk: InlineDisk) -> None:
    """Index files have no checksum: an entry is believed when the batch that it names is where it says."""
    config = LogConfig(segment_bytes=20_000, index_interval_bytes=300)
    log = new_log(disk, config)
    fill(log, random.Random(10), 150)
    largest_ms = max(segment.max_timestamp[0] for segment in log._segments)

    def answers() -> list[object]:
        offsets = range(0, log.end_offset, 7)
        reads = [log.read(offset, 700, below_offset=log.end_offset) for offset in offsets]
        times = range(0, largest_ms + 2, max(1, largest_ms // 40))
        return [
            [None if read is None else bytes(read.view()) for read in reads],
            [looked_up(log.offset_for_timestamp(time_ms, log.end_offset)) for time_ms in times],
            [(segment.end_offset, segment.max_timestamp) for segment in log._segments],
        ]

    expected = answers()
    log.close(is_clean=True)
    names = [name for name in disk.list(log.directory) if name.endswith((".index", ".timeindex"))]
    assert any(name.endswith(".timeindex") for name in names)
    rng = random.Random(11)
    for _ in range(100):
        file = disk.open(f"{log.directory}/{rng.choice(names)}")
        position, mask = rng.randrange(file.size), 1 << rng.randrange(8)
        whole = bytes(file.read(position, 1))
        file.write_at(position, bytes([whole[0] ^ mask]))
        log = reopen(disk, config, is_clean=True)
        assert answers() == expected
        log.close(is_clean=True)
        if disk.exists(file.path):
            disk.open(file.path).write_at(position, whole)
        else:
            reopen(disk, config, is_clean=False).close(is_clean=True)


def test_a_truncation_does_not_rely_on_a_corrupt_index() -> None:
    """It makes an entry in the middle the last one, and the walk over the batches behind the index begins there."""
    config = LogConfig(segment_bytes=20_000, index_interval_bytes=300)
    for seed in range(150):
        rng = random.Random(seed)
        with fresh_disk() as disk:
            log = new_log(disk, config)
            headers = [append(log, timestamp_ms=1000 * number) for number in range(60)]
            log.close(is_clean=True)
            names = [name for name in disk.list(log.directory) if name.endswith((".index", ".timeindex"))]
            file = disk.open(f"{log.directory}/{rng.choice(names)}")
            position = rng.randrange(file.size)
            file.write_at(position, bytes([file.read(position, 1)[0] ^ 1 << rng.randrange(8)]))

            log = reopen(disk, config, recorded=log.end, is_clean=True)
            (segment,) = log._segments
            kept = headers[: rng.randint(1, len(headers))]
            end_offset = kept[-1].last_offset + 1
            log.truncate(log.lineage.index_of(end_offset - 1) + 1, known_commit=0)
            largest_ms = max(header.max_timestamp for header in kept)
            assert (segment.end_offset, segment.max_timestamp[0]) == (end_offset, largest_ms), seed
            append(log, timestamp_ms=1)
            assert [header.base_offset for header in stored_headers(log)] == [
                *(header.base_offset for header in kept),
                end_offset,
            ]


@pytest.mark.parametrize("base_offset", [1 << 40, 1 << 31, 0])
def test_a_corrupt_base_offset_is_corruption_and_no_other_error(disk: InlineDisk, base_offset: int) -> None:
    """Found where an index is built from a segment that recovery had no need to look at."""
    log = new_log(disk, LogConfig(segment_bytes=2000, index_interval_bytes=1 << 20))
    fill(log, random.Random(10), 30)
    assert len(log._segments) > 2
    segment = log._segments[1]
    second = list(log.batches(segment.base_offset, segment.end_offset))[1]
    second.file.write_at(second.position, base_offset.to_bytes(8, "big"))
    log.close(is_clean=True)
    log = reopen(disk, log.config, recorded=log.end, is_clean=True)
    with pytest.raises(CorruptLogError):
        list(log.batches(segment.base_offset))


def test_the_age_of_a_segment_is_that_of_its_first_batch_after_a_restart_and_after_a_cut(
    disk: InlineDisk,
) -> None:
    config = LogConfig(segment_bytes=20_000, index_interval_bytes=100, segment_ms=5000)
    log = new_log(disk, config)
    for number in range(20):
        append(log, timestamp_ms=1000 + 100 * number)
    assert log.is_due_to_roll(6500)
    log.close(is_clean=True)
    log = reopen(disk, config, is_clean=True)
    assert log.end_offset == 60 and len(log._segments[0].index)
    assert log.is_due_to_roll(6500)
    log.truncate(2, known_commit=0)
    append(log, timestamp_ms=4000)
    assert not log.is_due_to_roll(6500)


def test_the_age_of_a_segment_that_begins_with_a_filler_is_that_of_what_follows(disk: InlineDisk) -> None:
    """A follower gets fillers in place of what its leader has compacted."""
    config = LogConfig(segment_bytes=20_000, index_interval_bytes=100, segment_ms=5000)
    log = new_log(disk, config)
    append_filler(log, 3)
    assert not log.is_due_to_roll(1_000_000)
    for number in range(20):
        append(log, timestamp_ms=1000 + 100 * number)
    assert log.is_due_to_roll(6500) and not log.is_due_to_roll(5500)
    log.close(is_clean=True)
    log = reopen(disk, config, is_clean=True)
    assert len(log._segments[0].index)
    assert log.is_due_to_roll(6500) and not log.is_due_to_roll(5500)
    append(log, timestamp_ms=7000)
    assert len(log._segments) == 2
