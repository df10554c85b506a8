"""The batches of a log's segments in a row, read from their files: for the heavy loops beside the event loop.

The files may be read in another process than that of the node. What lies outside of the checksum of a batch is compared
with where it stands.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from protocol.errors import KafkaError
from protocol.records.batch import HEADER_BYTES, MAGIC, MIN_LENGTH, BatchHeader, check_crc, parse_header
from storage.compaction.plan import SegmentFacts
from storage.disk import Disk
from storage.errors import CorruptLogError
from storage.segment_files import segment_path

if TYPE_CHECKING:
    from storage.log import Log

#: Read and written at a time.
BLOCK_BYTES = 1 << 20

_NO_LIMIT = 1 << 62


class UncleanableError(Exception):
    """The records of this log cannot be read, although its bytes are what was written."""


class BytesMoved(NamedTuple):
    """So many bytes were read or written since the last event: for throttling."""

    byte_count: int


class Explaining:
    """Tells corruption from what a producer was allowed to write once, and nobody here can read."""

    def __init__(self, path: str, header: BatchHeader, batch: memoryview) -> None:
        self._path = path
        self._header = header
        self._batch = batch

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if not isinstance(error, KafkaError):
            return
        where = f"the batch at {self._header.base_offset}"
        if not check_crc(self._batch, 0, self._header):
            raise CorruptLogError(self._path, 0, f"{where} fails its checksum") from error
        raise UncleanableError(f"{where} cannot be read: {error.message}") from error


class BatchScan:
    """Reads segments of one log. `rows`: (offset, term) of the rows of its lineage, rising."""

    def __init__(self, disk: Disk, directory: str, rows: Sequence[tuple[int, int]]) -> None:
        self._disk = disk
        self._directory = directory
        self._row_offsets = [offset for offset, _ in rows]
        self._row_terms = [term for _, term in rows]
        #: Bytes read and written since the last event.
        self.moved_bytes = 0

    def moved(self, at_least_bytes: int = BLOCK_BYTES) -> Iterator[BytesMoved]:
        if self.moved_bytes >= at_least_bytes:
            moved, self.moved_bytes = self.moved_bytes, 0
            yield BytesMoved(moved)

    def term_at(self, offset: int) -> int:
        at = bisect_right(self._row_offsets, offset) - 1
        return self._row_terms[at]

    def borders(self, from_offset: int, below_offset: int) -> list[int]:
        """Where rows stand strictly between the two."""
        first = bisect_right(self._row_offsets, from_offset)
        return sorted({offset for offset in self._row_offsets[first:] if offset < below_offset})

    def explaining(self, segment: SegmentFacts, header: BatchHeader, batch: memoryview) -> Explaining:
        return Explaining(segment_path(self._directory, segment.base_offset), header, batch)

    def batches(
        self, segment: SegmentFacts, below_offset: int = _NO_LIMIT
    ) -> Iterator[tuple[BatchHeader, memoryview]]:
        """All batches of a segment that begin below this offset. What lies above is not read, because it may still be
        cut off. Raises CorruptLogError, MissingPathError."""
        path = segment_path(self._directory, segment.base_offset)
        file = self._disk.open(path)
        position, end_offset, size = 0, segment.base_offset, segment.size_bytes
        block_start, block = 0, memoryview(b"")
        try:
            while position < size and end_offset < below_offset:
                at = position - block_start
                header, wanted = _batch_at(block, at)
                while header is None:
                    block = file.read(position, min(max(wanted, BLOCK_BYTES), size - position))
                    if len(block) < wanted:
                        raise CorruptLogError(path, position, "half a batch")
                    self.moved_bytes += len(block)
                    block_start, at = position, 0
                    header, wanted = _batch_at(block, 0)
                self._check_place(path, position, header, end_offset)
                yield header, block[at : at + header.size_bytes]
                position += header.size_bytes
                end_offset = header.next_offset
        finally:
            file.close()
        if position >= size and end_offset != segment.end_offset:
            raise CorruptLogError(path, position, f"ends at {end_offset}, not at {segment.end_offset}")

    def _check_place(self, path: str, position: int, header: BatchHeader, end_offset: int) -> None:
        is_in_place = (
            header.magic == MAGIC
            and header.length >= MIN_LENGTH
            and header.base_offset == end_offset
            and header.leader_epoch == self.term_at(end_offset)
        )
        if not is_in_place:
            raise CorruptLogError(path, position, f"the batch at {end_offset} is not what was written")


def has_its_segments(log: Log) -> bool:
    """Whether all files of the log are there, by name. If not, somebody else has taken them away."""
    return all(log.disk.exists(segment_path(log.directory, each.base_offset)) for each in log.segments())


def _batch_at(block: memoryview, at: int) -> tuple[BatchHeader | None, int]:
    """The header of the batch at this position. None: the block does not have all of it, and so many bytes are
    needed."""
    if at + HEADER_BYTES > len(block):
        return None, HEADER_BYTES
    header = parse_header(block, at)
    size_bytes = max(header.size_bytes, HEADER_BYTES)
    return (header, 0) if at + size_bytes <= len(block) else (None, size_bytes)
