"""Putting one segment in the place of some neighbours: how compaction changes a log on disk.

The new segment is built in the folder `.compacting`, by whoever does the work. Once everything in it is durable, the
log renames it to `.compacted` (`commit_swap`): from then on the swap counts, and whoever meets that folder finishes it
(`finish_swap`), in this process or in the next. A crash at any step leaves the old segments or the new one.
"""

from __future__ import annotations

from collections.abc import Sequence

from protocol.records.batch import BatchHeader
from protocol.records.crc import crc32c
from storage.aborted_index import AbortedIndex
from storage.disk import Buffer, Disk
from storage.errors import CorruptLogError
from storage.index_files import delete_indexes
from storage.segment import Segment
from storage.segment_files import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    deleted_path,
    segment_path,
)
from storage.small_files import read_file, write_file

COMPACTING_NAME = ".compacting"
COMPACTED_NAME = ".compacted"
#: In those folders: the base offsets of the segments that are replaced, and a checksum.
_REPLACED_NAME = "replaced"
#: In the order in which they are moved. The first one always exists: once it is moved, the old segments are set aside,
#: durably. The segment itself comes last: while it is not moved, the swap is not over.
_MOVED_SUFFIXES = (TRANSACTION_INDEX_SUFFIX, TIME_INDEX_SUFFIX, INDEX_SUFFIX, LOG_SUFFIX)


class SegmentBuild:
    """Builds the segment that takes the place of those with the base offsets `replaced`, which rise: neighbours, all of
    them sealed. One build per log at a time. Blocks for flushes: not for the event loop."""

    def __init__(
        self, disk: Disk, directory: str, replaced: Sequence[int], index_interval_bytes: int
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._folder = f"{directory}/{COMPACTING_NAME}"
        self._replaced = replaced
        discard_build(disk, directory)
        disk.make_directory(self._folder)
        file = disk.open(segment_path(self._folder, replaced[0]), create=True)
        self._segment = Segment(disk, self._folder, replaced[0], file, index_interval_bytes)
        self._end_offset = replaced[0]

    @property
    def size_bytes(self) -> int:
        return self._segment.size_bytes

    def append(self, batches: Sequence[Buffer], headers: Sequence[BatchHeader]) -> None:
        """Append batches, which leave no hole. Raises DiskFullError."""
        segment = self._segment
        position = segment.size_bytes
        segment.file.append(batches)
        for header in headers:
            assert header.base_offset == self._end_offset, f"a hole at {self._end_offset}"
            segment.note_batch(header, position)
            position += header.size_bytes
            self._end_offset = header.next_offset
        segment.size_bytes = position
        assert segment.file.size == position, "headers do not describe the batches"

    def finish(self, end_offset: int, aborted: AbortedIndex) -> None:
        """Make everything durable, for `commit_swap`. `end_offset`: of the last segment that is replaced. `aborted`:
        what was aborted in the new one. Raises DiskFullError."""
        assert self._end_offset == end_offset, f"it ends at {self._end_offset}, not at {end_offset}"
        segment = self._segment
        segment.file.flush()
        segment.write_index_files(is_sealed=True)
        transactions = segment_path(self._folder, self._replaced[0], TRANSACTION_INDEX_SUFFIX)
        write_file(self._disk, transactions, aborted.encode())
        replaced = b"".join(b"%d\n" % base_offset for base_offset in self._replaced)
        checked = replaced + b"%08x\n" % crc32c(replaced)
        write_file(self._disk, f"{self._folder}/{_REPLACED_NAME}", checked)
        segment.release_file()
        self._disk.flush_directory(self._folder)


def commit_swap(disk: Disk, directory: str) -> None:
    """A build is finished: have the swap count. Blocks for a flush."""
    disk.rename(f"{directory}/{COMPACTING_NAME}", f"{directory}/{COMPACTED_NAME}")
    disk.flush_directory(directory)


def discard_build(disk: Disk, directory: str) -> None:
    """Of a build that was not finished."""
    folder = f"{directory}/{COMPACTING_NAME}"
    if disk.exists(folder):
        disk.remove_tree(folder)


def finish_swap(disk: Disk, directory: str) -> None:
    """Do what is left of a swap that counts; nothing where there is none. Blocks for flushes. Raises
    CorruptLogError."""
    folder = f"{directory}/{COMPACTED_NAME}"
    if not disk.exists(folder):
        return
    # It may be without that file: a crash came while it was removed, when all was over.
    replaced = _read_replaced(disk, f"{folder}/{_REPLACED_NAME}")
    if replaced and disk.exists(segment_path(folder, replaced[0])):
        # Files that have been moved have the names of old ones. So nothing is set aside once the first one is moved.
        if disk.exists(segment_path(folder, replaced[0], _MOVED_SUFFIXES[0])):
            for base_offset in replaced:
                _set_aside(disk, directory, base_offset)
            # None of the old ones may come back beside the new one: recovery would find two segments that overlap.
            disk.flush_directory(directory)
        for suffix in _MOVED_SUFFIXES:
            built = segment_path(folder, replaced[0], suffix)
            if disk.exists(built):
                disk.rename(built, segment_path(directory, replaced[0], suffix))
        # Both: if the segment were back in this folder, a later start would put it in the place of a newer one.
        disk.flush_together((), [directory, folder])
    disk.remove_tree(folder)
    disk.flush_directory(directory)


def _set_aside(disk: Disk, directory: str, base_offset: int) -> None:
    """The bytes are freed in the background: at once, a large file would stall the flushes of all others."""
    delete_indexes(disk, directory, base_offset)
    transactions = segment_path(directory, base_offset, TRANSACTION_INDEX_SUFFIX)
    if disk.exists(transactions):
        disk.unlink(transactions)
    path = segment_path(directory, base_offset)
    if disk.exists(path):
        deleted = deleted_path(disk, path)
        disk.rename(path, deleted)
        disk.remove_later(deleted)


def _read_replaced(disk: Disk, path: str) -> list[int]:
    if not disk.exists(path):
        return []
    lines = read_file(disk, path).splitlines(keepends=True)
    if len(lines) < 2 or lines[-1] != b"%08x\n" % crc32c(b"".join(lines[:-1])):
        raise CorruptLogError(path, 0, "the checksum is wrong")
    return [int(line) for line in lines[:-1]]
