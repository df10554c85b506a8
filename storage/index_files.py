"""The two index files of a segment, as in Kafka.

A file under its own name is never torn. Either can be lost, and is then rebuilt from the segment.
"""

from __future__ import annotations

from storage.disk import Disk
from storage.offset_index import OffsetIndex, TimeIndex
from storage.segment_files import INDEX_SUFFIX, TIME_INDEX_SUFFIX, segment_path
from storage.small_files import read_file, replace_file


def read_indexes(
    disk: Disk, directory: str, base_offset: int, segment_bytes: int
) -> tuple[OffsetIndex, TimeIndex] | None:
    """The indexes of the segment with this base offset and size; None where they were not written.

    Raises IndexDamagedError where a file is no index of such a segment, MissingPathError where one is missing.
    """
    if not disk.exists(segment_path(directory, base_offset, INDEX_SUFFIX)):
        return None
    index = OffsetIndex.decode(base_offset, _read(disk, directory, base_offset, INDEX_SUFFIX), segment_bytes)
    time_index = TimeIndex.decode(base_offset, _read(disk, directory, base_offset, TIME_INDEX_SUFFIX))
    return index, time_index


def _read(disk: Disk, directory: str, base_offset: int, suffix: str) -> bytes:
    return read_file(disk, segment_path(directory, base_offset, suffix))


def write_indexes(
    disk: Disk, directory: str, base_offset: int, index: OffsetIndex, time_index: TimeIndex
) -> None:
    """Write both durably, under their names only when they are whole. The names are durable with the folder's flush."""
    # The time index first: it is harmless without its partner, the offset index is not.
    for suffix, data in ((TIME_INDEX_SUFFIX, time_index.encode()), (INDEX_SUFFIX, index.encode())):
        replace_file(disk, segment_path(directory, base_offset, suffix), data)


def delete_indexes(disk: Disk, directory: str, base_offset: int) -> None:
    for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
        path = segment_path(directory, base_offset, suffix)
        if disk.exists(path):
            disk.unlink(path)
