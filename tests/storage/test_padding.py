"""Zeros behind small appends: the file does not grow with each, and nobody ever takes them for data."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from storage.disk import BLOCK_BYTES, MAX_PADDED_BYTES, Buffer, DiskFullError
from storage.errors import CorruptLogError
from storage.file_disk import FileDisk
from storage.log import Log
from storage.log_types import LogConfig
from tests.storage.helpers import InlineDisk, append, log_files, new_log, reopen, stored_headers

LARGE = LogConfig()


def active_file(log: Log) -> bytes:
    return Path(log._segments[-1].path).read_bytes()


def test_small_appends_fill_a_block_and_the_file_grows_with_the_next(disk: InlineDisk) -> None:
    file = disk.open(f"{disk.root}/a", create=True)
    file.append([b"x" * 100], is_padded=True)
    count = BLOCK_BYTES // 100
    for number in range(2, count + 1):
        file.append([b"x" * 60, b"y" * 40], is_padded=True)
        assert file.size == 100 * number
        assert os.stat(file.path).st_size == BLOCK_BYTES
    file.append([b"x" * 100], is_padded=True)
    assert os.stat(file.path).st_size == 2 * BLOCK_BYTES
    assert file.size == 100 * (count + 1)
    stored = b"x" * 100 + (b"x" * 60 + b"y" * 40) * (count - 1) + b"x" * 100
    assert bytes(file.read(0, 2 * BLOCK_BYTES)) == stored
    assert Path(file.path).read_bytes() == stored + bytes(2 * BLOCK_BYTES - len(stored))


def test_large_appends_and_those_that_are_not_asked_for_it_leave_no_zeros(disk: InlineDisk) -> None:
    file = disk.open(f"{disk.root}/a", create=True)
    file.append([b"x" * 100])
    assert os.stat(file.path).st_size == 100
    file.append([b"x" * (MAX_PADDED_BYTES + 1)], is_padded=True)
    assert os.stat(file.path).st_size == 100 + MAX_PADDED_BYTES + 1
    file.append([b"x" * 100], is_padded=True)
    assert os.stat(file.path).st_size == BLOCK_BYTES
    file.append([b"x" * BLOCK_BYTES], is_padded=True)
    assert os.stat(file.path).st_size == file.size
    assert bytes(file.read(0, 1 << 20)) == b"x" * file.size


def test_trimmed_or_cut_the_file_has_no_zeros(disk: InlineDisk) -> None:
    file = disk.open(f"{disk.root}/a", create=True)
    file.append([b"x" * 100], is_padded=True)
    file.trim()
    assert os.stat(file.path).st_size == file.size == 100
    file.append([b"x" * 100], is_padded=True)
    file.truncate(150)
    assert os.stat(file.path).st_size == file.size == 150
    file.append([b"x" * 100], is_padded=True)
    assert disk.open(file.path).size == BLOCK_BYTES, "whoever opens it next sees the zeros"


def test_a_disk_that_is_full_leaves_no_zeros(disk: FileDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    file = disk.open(f"{disk.root}/a", create=True)
    file.append([b"whole"], is_padded=True)

    def half(fd: int, data: Buffer, position: int) -> int:
        os.pwritev(fd, [bytes(data)[:3]], position)
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr("os.pwrite", half)
    with pytest.raises(DiskFullError):
        file.append([b"abcdef"], is_padded=True)
    assert os.stat(file.path).st_size == file.size == 5
    monkeypatch.undo()
    file.append([b"more"], is_padded=True)
    assert Path(file.path).read_bytes() == b"wholemore" + bytes(BLOCK_BYTES - 9)


def test_a_write_that_stops_within_the_zeros_goes_on(disk: FileDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    file = disk.open(f"{disk.root}/a", create=True)
    real = os.pwritev

    def partial(fd: int, buffers: Sequence[Buffer], position: int) -> int:
        return real(fd, [b"".join(buffers)[:1000]], position)

    monkeypatch.setattr("os.pwritev", partial)
    file.append([b"whole"], is_padded=True)
    assert Path(file.path).read_bytes() == b"whole" + bytes(BLOCK_BYTES - 5)
    assert file.size == 5


def test_a_log_grows_by_blocks_and_a_killed_one_opens_where_its_last_batch_ends(disk: InlineDisk) -> None:
    log = new_log(disk, LARGE)
    first = append(log)
    sizes = set()
    while log.active_segment_bytes + first.size_bytes <= BLOCK_BYTES:
        append(log)
        sizes.add(len(active_file(log)))
    assert sizes == {BLOCK_BYTES}, "no flush of these had to make a size durable"
    log.flush()
    headers, size, end = stored_headers(log), log.active_segment_bytes, log.end
    log.close(is_clean=False)
    for recorded in (None, end):
        log = reopen(disk, LARGE, recorded=recorded)
        assert stored_headers(log) == headers
        assert log.active_segment_bytes == size == len(active_file(log))
        log.close(is_clean=False)
    log = reopen(disk, LARGE, recorded=end)
    headers.append(append(log))
    log.close(is_clean=False)
    assert stored_headers(reopen(disk, LARGE, recorded=end)) == headers


def test_a_log_that_holds_nothing_but_zeros_is_empty(disk: InlineDisk) -> None:
    """The first batch was not flushed, the size of the file was."""
    log = new_log(disk, LARGE)
    recorded = log.end
    append(log)
    log.close(is_clean=False)
    path = log_files(disk.root)[0]
    path.write_bytes(bytes(BLOCK_BYTES - 1))
    log = reopen(disk, LARGE, recorded=recorded)
    assert log.end == recorded
    assert path.stat().st_size == 0
    assert append(log).base_offset == 0


def test_zeros_are_no_end_of_the_log_where_more_was_durable(disk: InlineDisk) -> None:
    log = new_log(disk, LARGE)
    append(log)
    size = log.active_segment_bytes
    append(log)
    log.flush()
    recorded = log.end
    log.close(is_clean=False)
    path = log_files(disk.root)[0]
    corrupt = path.read_bytes()[:size] + bytes(BLOCK_BYTES - size)
    path.write_bytes(corrupt)
    with pytest.raises(CorruptLogError):
        reopen(disk, LARGE, recorded=recorded)
    assert path.read_bytes() == corrupt, "quarantine changes nothing"


def test_what_others_read_ends_with_the_last_batch(disk: InlineDisk) -> None:
    """Sealed segments at once, the active one when the log is quiet or closed."""
    log = new_log(disk, LARGE)
    append(log)
    sealed = log._segments[-1]
    log.roll()
    assert os.stat(sealed.path).st_size == sealed.size_bytes
    append(log)
    log.trim_if_quiet()
    assert len(active_file(log)) == BLOCK_BYTES, "it may go on"
    append(log)
    log.trim_if_quiet()
    assert len(active_file(log)) == BLOCK_BYTES, "it did"
    log.trim_if_quiet()
    assert len(active_file(log)) == log.active_segment_bytes
    header = append(log)
    assert len(active_file(log)) == BLOCK_BYTES
    assert stored_headers(log)[-1] == header
    log.close(is_clean=True)
    assert len(active_file(log)) == log.active_segment_bytes
    assert stored_headers(reopen(disk, LARGE, recorded=log.end, is_clean=True))[-1] == header
