"""The lineage: the entries of a partition's Raft log that clients never see.

They lie in one append-only file beside the segments. A row says that a term began, or that a configuration changed,
at a certain log end. Rows are chained: each carries a checksum over itself and, through the checksum of the row
before, over all rows before it (replication.md section 1). The Raft index of a row is implied: `offset + position`.

Layout of a row, big-endian: length uint32 (of what follows the checksum), checksum uint32, version int8,
kind int8, term int32, offset int64, payload.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from protocol.records.crc import crc32c
from storage.disk import Disk, File, MissingPathError
from storage.errors import CorruptLogError

LINEAGE_NAME = "lineage"
#: Below every term: the last term of a log without rows. Terms begin at -1, in which a group is founded; those of
#: leaders, which clients see as leader epochs, at 0.
NO_TERM = -2
#: What clients are told of an epoch that there is not, and of its end (Kafka's UNDEFINED_EPOCH and its offset).
UNDEFINED = -1

_FRAME = struct.Struct(">II")
_FIXED = struct.Struct(">bbiq")
_VERSION = 1

#: A row names a configuration, which is a handful of replicas. A larger length means that this is no row.
MAX_ROW_BYTES = 1 << 20


class Row(NamedTuple):
    """One lineage row. `index` is its Raft index; `offset` the log end at which it stands."""

    index: int  # type: ignore[assignment]  # hides tuple.index: the usual name is worth more
    term: int
    offset: int
    kind: int
    payload: bytes


class Lineage:
    """All rows of one partition, in memory and on disk. Rows are never dropped below the log start."""

    #: Invariants: rows[k].index == rows[k].offset + k; terms and offsets never fall; `_offsets`, `_indexes`,
    #: `_terms`, `_ends` (file position after each row) and `_checksums` mirror `rows`, item by item.
    rows: list[Row]

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path
        #: Open only while it is dirty: thousands of partitions rarely write here.
        self._file: File | None = None
        self.rows = []
        self._offsets = array("q")
        self._indexes = array("q")
        self._terms = array("q")
        self._ends = array("q")
        self._checksums = array("Q")
        #: Rows known to be durable. Invariant: 0 <= flushed_count <= len(rows).
        self.flushed_count = 0

    @classmethod
    def create(cls, disk: Disk, directory: str, rows: Sequence[Row] = ()) -> Lineage:
        """Create the file. Its name is durable once the caller flushes the folder."""
        path = f"{directory}/{LINEAGE_NAME}"
        disk.open(path, create=True).close()
        lineage = cls(disk, path)
        for row in rows:
            appended = lineage.append(row.term, row.offset, row.kind, row.payload)
            assert appended.index == row.index, f"row {row} does not follow {lineage.rows[-2:]}"
        return lineage

    @classmethod
    def open(cls, disk: Disk, directory: str, recorded_count: int, *, is_settled: bool = True) -> Lineage:
        """Read the whole rows. A torn end stays in the file until `make_whole`.

        `is_settled`: the file cannot have been in the middle of a cut (`FlushedEnd.is_settled`).

        Raises CorruptLogError if the file is missing, or if fewer than `recorded_count` rows are whole: both were
        durable once.
        """
        lineage = cls(disk, f"{directory}/{LINEAGE_NAME}")
        try:
            file = disk.open(lineage._path)
        except MissingPathError as error:
            raise CorruptLogError(lineage._path, 0, "missing") from error
        end = lineage._parse(file.read(0, file.size))
        if len(lineage.rows) < recorded_count:
            raise CorruptLogError(lineage._path, end, f"{len(lineage.rows)} of {recorded_count} rows")
        lineage.flushed_count = recorded_count
        if end < file.size or len(lineage.rows) > recorded_count or not is_settled:
            lineage._file = file
        return lineage

    def make_whole(self) -> None:
        """Cut off a torn end and make the rest durable, before anything else is changed or written."""
        if self._file is not None:
            whole_bytes = self._ends[-1] if self._ends else 0
            if whole_bytes < self._file.size:
                self._file.truncate(whole_bytes)
            # Written again: a flush that failed in an earlier process leaves pages that only look durable.
            start = self._ends[self.flushed_count - 1] if self.flushed_count else 0
            if start < whole_bytes:
                self._file.write_at(start, self._file.read(start, whole_bytes - start))
            self.flush()

    def _parse(self, data: memoryview) -> int:
        """Remember the whole rows at the start of `data`. Returns the position where they end."""
        position = 0
        while position + _FRAME.size + _FIXED.size <= len(data):
            length, checksum = _FRAME.unpack_from(data, position)
            end = position + _FRAME.size + length
            if not _FIXED.size <= length <= MAX_ROW_BYTES or end > len(data):
                break
            body = data[position + _FRAME.size : end]
            if checksum != self._chain(length, body):
                break
            version, kind, term, offset = _FIXED.unpack_from(body)
            if version != _VERSION or (self.rows and (term < self.rows[-1].term or offset < self.end_offset)):
                break
            self._remember_row(term, offset, kind, bytes(body[_FIXED.size :]), end, checksum)
            position = end
        return position

    def _chain(self, length: int, body: bytes | memoryview) -> int:
        previous = self._checksums[-1] if self._checksums else 0
        return crc32c(body, crc32c(struct.pack(">II", previous, length)))

    def _remember_row(
        self, term: int, offset: int, kind: int, payload: bytes, end: int, checksum: int
    ) -> Row:
        row = Row(offset + len(self.rows), term, offset, kind, payload)
        self.rows.append(row)
        self._offsets.append(offset)
        self._indexes.append(row.index)
        self._terms.append(term)
        self._ends.append(end)
        self._checksums.append(checksum)
        return row

    # -- writing

    @property
    def is_dirty(self) -> bool:
        return self._file is not None

    def append(self, term: int, offset: int, kind: int, payload: bytes) -> Row:
        """Write a row at log end `offset`. The row before it is made durable first, if it is not durable yet."""
        assert term >= self.last_term, f"term {term} after {self.last_term}"
        assert offset >= self.end_offset, f"row at {offset} after a row at {self.end_offset}"
        if self.flushed_count < len(self.rows):
            self.flush()
        body = _FIXED.pack(_VERSION, kind, term, offset) + payload
        assert len(body) <= MAX_ROW_BYTES
        checksum = self._chain(len(body), body)
        file = self._open()
        file.append([_FRAME.pack(len(body), checksum), body])
        return self._remember_row(term, offset, kind, payload, file.size, checksum)

    def cut(self, count: int) -> None:
        """Keep the first `count` rows, durably before returning (replication.md section 1)."""
        assert 0 <= count <= len(self.rows)
        if count == len(self.rows):
            return
        self._open().truncate(self._ends[count - 1] if count else 0)
        del self.rows[count:]
        for mirror in (self._offsets, self._indexes, self._terms, self._ends, self._checksums):
            del mirror[count:]
        self.flushed_count = min(self.flushed_count, count)
        self.flush()

    def flush(self) -> None:
        """Make every row durable now. Blocks: rows are rare."""
        if self._file is not None:
            self._file.flush()
            self.flushed(len(self.rows))

    def dirty_file(self) -> File | None:
        """The file that a flush round has to flush. None: every row is durable."""
        return self._file

    def flushed(self, count: int) -> None:
        """A flush that began with `count` rows is over, and no row was cut meanwhile."""
        self.flushed_count = max(self.flushed_count, count)
        if self.flushed_count == len(self.rows):
            self._file = None

    def _open(self) -> File:
        if self._file is None:
            self._file = self._disk.open(self._path)
        return self._file

    # -- reading

    @property
    def last_term(self) -> int:
        return self.rows[-1].term if self.rows else NO_TERM

    @property
    def end_offset(self) -> int:
        """Offset of the last row."""
        return self.rows[-1].offset if self.rows else 0

    def rows_before_or_at(self, offset: int) -> int:
        """How many rows stand at or before the record at `offset`."""
        return bisect_right(self._offsets, offset)

    def rows_below_index(self, index: int) -> int:
        return bisect_left(self._indexes, index)

    def index_before(self, offset: int) -> int:
        """Raft index of what stands first at `offset`: a row there, otherwise the record."""
        return offset + bisect_left(self._offsets, offset)

    def index_of(self, offset: int) -> int:
        """Raft index of the record at `offset`."""
        return offset + bisect_right(self._offsets, offset)

    def offset_of_index(self, index: int) -> int:
        """Offset of the first record at or above `index`."""
        return index - bisect_left(self._indexes, index)

    def term_at_index(self, index: int) -> int:
        return self._terms[bisect_right(self._indexes, index) - 1]

    def term_at_offset(self, offset: int) -> int:
        """Leader epoch of the record at `offset`: the term of the last row at or before it. Negative where that is no
        leader's: no record stands there."""
        at = bisect_right(self._offsets, offset) - 1
        return self._terms[at] if at >= 0 else UNDEFINED

    def epoch_end_offset(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """OffsetForLeaderEpoch (KIP-101, KIP-279): (largest epoch at or below `epoch`, its end offset).

        The current epoch ends at the log end, not at the high watermark. (-1, -1) where `epoch` is unknown:
        above the current one, or below the first leader's.
        """
        if epoch > self.last_term:
            return UNDEFINED, UNDEFINED
        at = bisect_right(self._terms, epoch)
        if at == 0 or self._terms[at - 1] < 0:
            return UNDEFINED, UNDEFINED
        end = self._offsets[at] if at < len(self.rows) else log_end_offset
        return self._terms[at - 1], end
