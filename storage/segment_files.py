"""The names of a segment's files, and the walk from batch header to batch header."""

from __future__ import annotations

from collections.abc import Iterator

from protocol.records.batch import HEADER_BYTES, MIN_LENGTH, BatchHeader, parse_header
from storage.disk import Disk, File
from storage.errors import CorruptLogError

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TRANSACTION_INDEX_SUFFIX = ".txnindex"
SNAPSHOT_SUFFIX = ".snapshot"
DELETED_SUFFIX = ".deleted"
TEMPORARY_SUFFIX = ".tmp"

#: How far the last offset of a segment may lie from its base: offsets in an index are relative, and 31 bits wide.
MAX_RELATIVE_OFFSET = (1 << 31) - 1

#: Headers are read in blocks of this size: one read serves forty batches of 100 bytes, and a batch that is larger
#: than a block wastes no more than one read.
WALK_BLOCK_BYTES = 16 * 1024


def segment_path(directory: str, base_offset: int, suffix: str = LOG_SUFFIX) -> str:
    return f"{directory}/{base_offset:020d}{suffix}"


def deleted_path(disk: Disk, path: str) -> str:
    """A new name for a file that is to be removed. An earlier one may still keep its bytes for readers, and must not be
    replaced by this one."""
    number = 0
    while disk.exists(f"{path}.{number}{DELETED_SUFFIX}"):
        number += 1
    return f"{path}.{number}{DELETED_SUFFIX}"


def iter_headers(file: File, position: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
    """The batch headers in [position, end), each with its position. Raises CorruptLogError at bytes that are no
    header."""
    block_start = block_end = position
    block = memoryview(b"")
    while position < end:
        if position + HEADER_BYTES > block_end:
            block_start = position
            block = file.read(position, min(WALK_BLOCK_BYTES, end - position))
            block_end = block_start + len(block)
            if len(block) < HEADER_BYTES:
                raise CorruptLogError(file.path, position, "half a batch header")
        header = parse_header(block, position - block_start)
        if header.length < MIN_LENGTH or position + header.size_bytes > end:
            raise CorruptLogError(file.path, position, f"a batch of {header.length} bytes")
        yield position, header
        position += header.size_bytes
