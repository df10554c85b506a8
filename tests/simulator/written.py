"""What was committed in one group, as it was written: by this the work of compaction is judged.

Each replica compacts its own log at its own time, so two of them need not hold the same batches. But what either holds
of some offsets must be what is left of the batches that were committed there. Whole batches are kept, and records are
looked at only where somebody holds something else. So a group that is never compacted costs no more than the copies.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from hashlib import blake2b
from typing import NamedTuple

from protocol.records.batch import BatchHeader
from protocol.records.control import read_marker
from protocol.records.record import Record as StoredRecord
from protocol.records.record import iter_records
from protocol.schema import Buffer

#: A batch of some log, with its header.
Stored = tuple[BatchHeader, memoryview]


class Record(NamedTuple):
    """Of a data batch or of a marker."""

    offset: int
    key: bytes | None
    #: Of time, key, value and headers.
    digest: bytes
    #: It has a key, and null for a value.
    is_tombstone: bool


def records_of(batch: memoryview) -> list[Record]:
    return [
        Record(
            record.offset,
            None if record.key is None else bytes(record.key),
            _digest(record),
            is_tombstone=record.key is not None and record.value is None,
        )
        for record in iter_records(batch)
    ]


def _digest(record: StoredRecord) -> bytes:
    digest = blake2b(b"%d" % record.timestamp_ms, digest_size=16)
    parts: list[Buffer | None] = [record.key, record.value]
    for name, value in record.headers:
        parts += [name.encode(), value]
    for part in parts:
        digest.update(b"/-" if part is None else b"/%d/" % len(part))
        digest.update(part or b"")
    return digest.digest()


class Original:
    """A batch as it was committed first, and what became of its transaction."""

    def __init__(self, header: BatchHeader, batch: memoryview) -> None:
        self.header = header
        self._batch = bytes(batch)
        self._records: list[Record] | None = None
        #: Whether its data count; None: its transaction is open, or it is a control batch.
        self.is_committed: bool | None = None
        #: Of the marker that ended its transaction.
        self.marker_offset: int | None = None
        #: Of a marker: what it says.
        self.is_commit: bool | None = None

    @property
    def records(self) -> list[Record]:
        if self._records is None:
            self._records = records_of(memoryview(self._batch))
        return self._records


class Written:
    """The committed batches of one group, in order, without holes."""

    def __init__(self) -> None:
        self._bases: list[int] = []
        self._originals: list[Original] = []
        self.end_offset = 0
        #: By producer: the batches of its open transaction.
        self._open: dict[int, list[Original]] = {}
        #: Committed, and not in `_newest` yet.
        self._new: list[Original] = []
        self._newest: dict[bytes, Record] = {}

    def add(self, header: BatchHeader, batch: memoryview) -> None:
        """The next batch, committed for the first time."""
        assert header.base_offset >= self.end_offset, (
            f"a batch is committed at {header.base_offset}, all below {self.end_offset} was before"
        )
        original = Original(header, batch)
        self._bases.append(header.base_offset)
        self._originals.append(original)
        self.end_offset = header.next_offset
        if header.is_control:
            self._end(original, batch)
        elif header.is_transactional:
            self._open.setdefault(header.producer_id, []).append(original)
        else:
            original.is_committed = True
            self._new.append(original)

    def _end(self, original: Original, batch: memoryview) -> None:
        marker = read_marker(batch)
        if marker is None:
            return
        original.is_commit = marker.is_commit
        for ended in self._open.pop(original.header.producer_id, ()):
            ended.is_committed = marker.is_commit
            ended.marker_offset = original.header.base_offset
            if marker.is_commit:
                self._new.append(ended)

    # -- what was written where

    def covered(self, base_offset: int, next_offset: int) -> list[Original]:
        """The batches that were committed at these offsets. Empty unless one begins at the one and one ends at the
        other."""
        first = bisect_left(self._bases, base_offset)
        found = self._originals[first : bisect_left(self._bases, next_offset)]
        is_exact = (
            bool(found)
            and found[0].header.base_offset == base_offset
            and found[-1].header.next_offset == next_offset
        )
        return found if is_exact else []

    def at(self, base_offset: int) -> Original | None:
        first = bisect_left(self._bases, base_offset)
        is_there = first < len(self._bases) and self._bases[first] == base_offset
        return self._originals[first] if is_there else None

    def first_open_offset(self) -> int | None:
        """Where the earliest transaction begins whose marker is not committed."""
        return min((batches[0].header.base_offset for batches in self._open.values()), default=None)

    # -- which records count

    def newest(self) -> dict[bytes, Record]:
        """By key: its last record, those of aborted and of open transactions left out."""
        for original in self._new:
            for record in original.records:
                known = None if record.key is None else self._newest.get(record.key)
                if record.key is not None and (known is None or known.offset < record.offset):
                    self._newest[record.key] = record
        self._new.clear()
        return self._newest

    def is_superseded(self, record: Record) -> bool:
        if record.key is None:
            return False
        newest = self.newest().get(record.key)
        return newest is not None and newest.offset > record.offset


def counted(written: Written, batches: Iterable[Stored], start_offset: int) -> list[Record]:
    """The records that a log holds from an offset on, but for those of aborted and of open transactions."""
    found: list[Record] = []
    for header, batch in batches:
        if header.is_control or not header.count:
            continue
        original = written.at(header.base_offset)
        if original is not None and original.is_committed:
            found += [record for record in records_of(batch) if record.offset >= start_offset]
    return found
