"""Recovery against a model: what must survive a crash, what may, and what must be refused."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from protocol.records.batch import HEADER_BYTES
from storage.errors import CorruptLogError, UnfinishedLogError, WrongTopicError
from storage.group_commit import FlushRounds
from storage.journal import Journal
from storage.journal_records import Flushed
from storage.lineage import Row
from storage.log import Log
from storage.log_creation import create_log, install_log
from storage.log_recovery import open_log
from storage.log_types import FlushedEnd, GroupKey
from storage.partition_folder import METADATA_NAME
from storage.producer_snapshot import encode_snapshot
from storage.producer_state import ProducerStates
from tests.storage.helpers import (
    GROUP,
    LONGEST_FOLDER_NAME,
    ROW_KIND,
    SMALL,
    InlineDisk,
    StopError,
    StoppingDisk,
    append,
    batch_at,
    fill,
    flip_a_bit,
    fresh_disk,
    log_files,
    new_log,
    reopen,
    stored_headers,
    tear,
)


def entries(log: Log) -> list[tuple[int, int]]:
    """(index, term) of every entry: what two logs have to agree on."""
    found = [(row.index, row.term) for row in log.lineage.rows]
    for header in stored_headers(log):
        index = log.lineage.index_of(header.base_offset)
        found.extend((index + i, header.leader_epoch) for i in range(header.last_offset_delta + 1))
    return sorted(found)


def sizes(log: Log) -> dict[str, int]:
    return {segment.path: segment.size_bytes for segment in log._segments}


def grow(log: Log, rng: random.Random, steps: int) -> None:
    for _ in range(steps):
        if rng.random() < 0.2:
            log.append_row(log.lineage.last_term + 1, ROW_KIND, b"row")
        else:
            fill(log, rng, 1)


@settings(max_examples=40)
@given(seed=st.integers(0, 2**32))
def test_a_crash_keeps_what_was_flushed_and_a_prefix_of_the_rest(seed: int) -> None:
    """Un-flushed sectors survive in any subset; the file may keep any length between flushed and written."""
    rng = random.Random(seed)
    with fresh_disk() as disk:
        log = new_log(disk)
        grow(log, rng, rng.randrange(30))
        log.flush()
        durable = log.end
        durable_sizes = {
            **sizes(log),
            f"{log.directory}/lineage": Path(log.directory, "lineage").stat().st_size,
        }
        grow(log, rng, rng.randrange(20))
        written = entries(log)
        log.close(is_clean=False)

        for path in [log_files(disk.root)[-1], Path(log.directory, "lineage")]:
            flushed = durable_sizes.get(str(path), 0)
            if path.name == "lineage" and str(log_files(disk.root)[-1]) not in durable_sizes:
                flushed = path.stat().st_size  # a new segment followed: the rows before its data were flushed
            data = tear(path, flushed, rng, 0.3)
            path.write_bytes(data[: rng.randint(flushed, len(data))])

        log = reopen(disk, recorded=durable)
        assert log.end.end_index >= durable.end_index
        assert entries(log) == [entry for entry in written if entry[0] < log.end_index]
        assert log.flushed_end == log.end
        end = log.end
        grow(log, rng, 10)
        grown = entries(log)
        log.close(is_clean=False)
        log = reopen(disk, recorded=end)
        assert entries(log) == grown
        log.close(is_clean=False)


def test_a_batch_that_no_leader_has_stamped_is_no_entry(disk: InlineDisk) -> None:
    """Its epoch is -1, as in a client's request, and so is the term in which the group was founded."""
    log = new_log(disk, term=None)
    log.close(is_clean=False)
    log_files(disk.root)[-1].write_bytes(batch_at(0, -1))
    log = reopen(disk)
    assert (log.end_offset, log.end_index) == (0, 1)


@settings(max_examples=40)
@given(seed=st.integers(0, 2**32))
# The base offset of a batch above the recorded end that is not the last one.
@example(seed=538)
def test_a_flipped_bit_is_cut_above_the_recorded_end_and_refused_below(seed: int) -> None:
    rng = random.Random(seed)
    with fresh_disk() as disk:
        log = new_log(disk)
        fill(log, rng, rng.randint(1, 6))
        log.flush()
        recorded = log.end
        boundary = log.active_segment_bytes
        boundary_base = log.active_segment_base
        fill(log, rng, rng.randint(1, 3))
        written = entries(log)
        size = log.active_segment_bytes
        log.close(is_clean=False)
        path = log_files(disk.root)[-1]
        original = path.read_bytes()[:size]
        at = flip_a_bit(path, len(original), rng)
        data = path.read_bytes()

        is_below = int(path.stem) == boundary_base and at < boundary
        if is_below:
            lineage = Path(log.directory, "lineage").read_bytes()
            with pytest.raises(CorruptLogError) as error:
                reopen(disk, recorded=recorded)
            assert error.value.path == str(path)
            assert path.read_bytes() == data, "quarantine changes nothing"
            assert Path(log.directory, "lineage").read_bytes() == lineage
        else:
            log = reopen(disk, recorded=recorded)
            assert log.end.end_index >= recorded.end_index
            assert set(entries(log)) <= set(written)
            append(log)
            grown = stored_headers(log)
            log.close(is_clean=True)
            assert stored_headers(reopen(disk, is_clean=True)) == grown


@settings(max_examples=40)
@given(seed=st.integers(0, 2**32))
def test_a_flipped_bit_in_a_sealed_segment_is_never_torn(seed: int) -> None:
    """The name of a later segment says that everything below it is durable, recorded or not."""
    rng = random.Random(seed)
    with fresh_disk() as disk:
        log = new_log(disk)
        fill(log, rng, rng.randint(1, 6))
        log.flush()
        recorded = log.end
        fill(log, rng, 30)
        log.close(is_clean=False)
        bases = [segment.base_offset for segment in log._segments]
        unrecorded = [
            path
            for path, end in zip(log_files(disk.root)[:-1], bases[1:], strict=True)
            if end > recorded.end_offset
        ]
        path = rng.choice(unrecorded)
        flip_a_bit(path, path.stat().st_size, rng)
        data = path.read_bytes()
        with pytest.raises(CorruptLogError) as error:
            reopen(disk, recorded=recorded)
        assert error.value.path == str(path)
        assert path.read_bytes() == data, "quarantine changes nothing"


def test_of_two_batches_that_overlap_the_one_whose_base_offset_rose_is_wrong(disk: InlineDisk) -> None:
    """A base offset that rose above its successor's, at and above the recorded end (found by seed 538)."""
    log = new_log(disk)
    first = append(log, count=1)
    append(log, count=2)
    append(log, count=1)
    log.flush()
    end, before = log.end, FlushedEnd(first.last_offset + 3, 2)
    log.close(is_clean=False)
    path = log_files(disk.root)[0]
    data = bytearray(path.read_bytes())
    data[first.size_bytes : first.size_bytes + 8] = (2).to_bytes(8, "big")  # ends where the log was recorded
    path.write_bytes(data)
    with pytest.raises(CorruptLogError) as error:
        reopen(disk, recorded=end)
    assert error.value.position == first.size_bytes
    log = reopen(disk, recorded=before)
    assert log.end == before
    assert stored_headers(log) == [first]
    assert log._segments[0].max_timestamp == (first.max_timestamp, 0)


def test_a_hole_is_damage(disk: InlineDisk) -> None:
    """Above the recorded end it is cut; a segment that is missing, at the start or in between, is no torn write."""
    log = new_log(disk)
    append(log)
    log.flush()
    recorded = log.end
    path, size_bytes = log_files(disk.root)[-1], log.active_segment_bytes
    log.close(is_clean=False)
    path.write_bytes(path.read_bytes()[:size_bytes] + batch_at(4, 1))
    log = reopen(disk, recorded=recorded)
    assert log.end == recorded
    fill(log, random.Random(1), 60)
    log.flush()
    log.close(is_clean=False)
    first, second, third = log_files(disk.root)[:3]
    for missing, named in ((first, first.parent), (second, first), (third, second)):
        kept = missing.rename(missing.with_suffix(".aside"))
        with pytest.raises(CorruptLogError) as error:
            reopen(disk, recorded=recorded)
        assert error.value.path == str(named)
        kept.rename(missing)
    reopen(disk, recorded=recorded).close(is_clean=False)


def test_a_bad_row_is_refused_below_the_recorded_count_and_cut_above(disk: InlineDisk) -> None:
    log = new_log(disk)
    append(log)
    recorded = log.end
    log.append_row(2, ROW_KIND, b"second")
    log.flush()
    log.close(is_clean=False)
    path = Path(log.directory, "lineage")
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptLogError):
        reopen(disk, recorded=FlushedEnd(recorded.end_index + 1, recorded.row_count + 1))
    log = reopen(disk, recorded=recorded)
    assert log.end == recorded
    assert log.append_row(3, ROW_KIND, b"third").index == recorded.end_index


def test_a_row_over_lost_data_goes_with_the_data(disk: InlineDisk) -> None:
    log = new_log(disk)
    append(log)
    log.flush()
    durable = log.end
    append(log)
    log.append_row(2, ROW_KIND, b"")
    size = log._segments[0].size_bytes
    log.close(is_clean=False)
    path = log_files(disk.root)[0]
    path.write_bytes(path.read_bytes()[: size - 5])
    log = reopen(disk, recorded=durable)
    assert log.end == durable


def test_a_batch_of_another_term_than_its_row_is_cut(disk: InlineDisk) -> None:
    """The schedule of replication.md section 1: a row that was dropped without a sync comes back."""
    log = new_log(disk)
    append(log)
    durable = log.end
    log.flush()
    stray = batch_at(log.end_offset, 5)
    path = log_files(disk.root)[0]
    log.close(is_clean=False)
    with path.open("ab") as file:
        file.write(stray)
    assert reopen(disk, recorded=durable).end == durable


def test_missing_data_below_the_recorded_end_is_corruption_even_at_a_batch_boundary(disk: InlineDisk) -> None:
    log = new_log(disk)
    size = append(log).size_bytes
    append(log)
    log.flush()
    recorded = log.end
    log.close(is_clean=False)
    path = log_files(disk.root)[0]
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(CorruptLogError):
        reopen(disk, recorded=recorded)
    with pytest.raises(CorruptLogError):
        reopen(disk, recorded=recorded, is_clean=True)


def test_a_clean_start_trusts_indexes_but_not_a_torn_tail(disk: InlineDisk) -> None:
    log = new_log(disk)
    fill(log, random.Random(1), 20)
    expected = entries(log)
    log.close(is_clean=True)
    with log_files(disk.root)[-1].open("ab") as file:
        file.write(bytes(HEADER_BYTES - 1))
    log = reopen(disk, is_clean=True)
    assert entries(log) == expected


def test_a_clean_start_finds_an_end_that_is_not_the_recorded_one(disk: InlineDisk) -> None:
    """A base offset that rose in the last batch would move the end, and everything appended after it."""
    log = new_log(disk)
    append(log)
    last = append(log)
    end, position = log.end, log.active_segment_bytes - last.size_bytes
    log.close(is_clean=True)
    path = log_files(disk.root)[-1]
    data = bytearray(path.read_bytes())
    data[position : position + 8] = (last.base_offset + 4).to_bytes(8, "big")
    path.write_bytes(data)
    with pytest.raises(CorruptLogError) as error:
        reopen(disk, recorded=end, is_clean=True)
    assert error.value.position == position


def test_a_clean_start_does_not_vouch_for_a_log_that_was_not_open(disk: InlineDisk) -> None:
    """Power was lost before anything was recorded of it; the node that then stopped cleanly had not heard of its topic.
    Found by seed 287832208103."""
    log = new_log(disk)
    torn = append(log)
    append(log)
    log.flush()
    log._segments[-1].file.write_at(torn.size_bytes - 1, b"\x7f")
    log.close(is_clean=False)
    assert reopen(disk, is_clean=True).end_offset == 0


def test_a_folder_of_another_topic_or_half_made_is_never_opened(disk: InlineDisk) -> None:
    log = new_log(disk)
    log.close(is_clean=True)
    other = GroupKey(type(GROUP.topic_id)(int=8), 0)
    with pytest.raises(WrongTopicError):
        open_log(disk, log.directory, other, SMALL, recorded=None, log_start=0, is_clean=True)
    Path(log.directory, METADATA_NAME).unlink()
    with pytest.raises(UnfinishedLogError):
        reopen(disk)
    assert create_log(disk, log.directory, other, SMALL).end == FlushedEnd(0, 0)


def rounds_of(disk: InlineDisk, journal: Journal) -> FlushRounds:
    return FlushRounds(
        disk,
        journal,
        now=lambda: 0.0,
        on_durable=lambda *_: None,
        on_full=lambda error: pytest.fail(str(error)),
        on_fatal=lambda error: pytest.fail(str(error)),
    )


@pytest.mark.parametrize("seed", range(2))
def test_a_truncation_survives_a_crash_at_every_step(tmp_path: Path, seed: int) -> None:
    step, finished = 0, False
    while not finished:
        root = tmp_path / str(step)
        disk = StoppingDisk(str(root))
        journal = Journal.open(disk)
        rng = random.Random(seed)
        log = new_log(disk)
        fill(log, rng, 12)
        cut = log.end
        kept = entries(log)
        for term in (1, 2, 2):  # a configuration row keeps the term
            log.append_row(term, ROW_KIND, b"")
            fill(log, rng, 15)
        log.flush()
        before = entries(log)
        journal.append(Flushed(GROUP, log.end))
        journal.flush()
        disk.calls_left = step
        try:
            rounds_of(disk, journal).truncate(log, cut.end_index, cut.end_index)
            finished = True
        except StopError:
            pass
        disk.close()

        disk = StoppingDisk(str(root))
        state = Journal.open(disk).state(GROUP)
        assert state is not None
        log = reopen(disk, recorded=state.flushed_end)
        if finished:
            assert entries(log) == kept
        # A prefix of the old log, never shorter than what was to be kept, and never a mix.
        assert entries(log) == before[: len(entries(log))]
        assert log.end_index >= cut.end_index
        log.truncate(cut.end_index, cut.end_index)
        log.append_row(7, ROW_KIND, b"")
        append(log)
        expected = entries(log)
        log.close(is_clean=False)
        assert entries(reopen(disk)) == expected
        disk.close()
        step += 1
    assert step > 8


@pytest.mark.parametrize("name", ["topic-0", LONGEST_FOLDER_NAME], ids=["short", "longest"])
def test_an_install_leaves_the_old_log_or_the_new_one_at_every_step(tmp_path: Path, name: str) -> None:
    from storage.directory import list_partitions

    step, finished = 0, False
    rows = [Row(0, 0, 0, 0, b"configuration"), Row(1, 1, 0, 1, b""), Row(102, 4, 100, 1, b"")]
    snapshot = encode_snapshot(ProducerStates())
    while not finished:
        root = tmp_path / str(step)
        disk = StoppingDisk(str(root))
        journal = Journal.open(disk)
        log = new_log(disk, folder=name)
        fill(log, random.Random(1), 10)
        log.flush()
        old = entries(log)
        journal.append(Flushed(GROUP, log.end))
        journal.flush()
        log.close(is_clean=False)
        disk.calls_left = step
        try:
            log = install_log(
                disk,
                journal,
                log.directory,
                GROUP,
                SMALL,
                log_start=200,
                rows=rows,
                producer_snapshot=snapshot,
            )
            finished = True
            assert (log.end_index, log.start_offset, log.lineage.last_term) == (203, 200, 4)
        except StopError:
            pass
        disk.close()

        disk = StoppingDisk(str(root))
        state = Journal.open(disk).state(GROUP)
        assert state is not None
        (folder,) = list_partitions(disk)
        assert (folder.topic_id, folder.path) == (GROUP.topic_id, f"{disk.root}/{name}")
        log = reopen(disk, recorded=state.flushed_end, folder=name)
        new = [(row.index, row.term) for row in rows]
        assert entries(log) in ([new] if finished else [old, new])
        disk.close()
        step += 1
    assert step > 10
