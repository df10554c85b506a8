"""Small files that are written and read as a whole. Names are durable with the folder's flush."""

from __future__ import annotations

from storage.disk import Buffer, Disk, File
from storage.segment_files import TEMPORARY_SUFFIX


def write_file(disk: Disk, path: str, data: Buffer) -> None:
    """Write a new file durably. Raises DiskFullError."""
    _fill(disk.open(path, create=True), data)


def replace_file(disk: Disk, path: str, data: Buffer) -> None:
    """Write a file durably that has its name only when it is whole. Raises DiskFullError."""
    temporary = path + TEMPORARY_SUFFIX
    file = disk.open(temporary, create=True)
    file.truncate(0)
    _fill(file, data)
    disk.rename(temporary, path)


def read_file(disk: Disk, path: str) -> bytes:
    """Raises MissingPathError."""
    file = disk.open(path)
    try:
        return bytes(file.read(0, file.size))
    finally:
        file.close()


def _fill(file: File, data: Buffer) -> None:
    file.append([data])
    file.flush()
    file.close()
