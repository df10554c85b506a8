"""The journal of a data directory: votes, recorded ends, incarnations, bounds and quarantines.

All partitions share one file, so that a thousand votes cost one flush. It is filled with zeros ahead: overwriting
allocated blocks makes a flush about twice as fast as extending the file (performance.md section 1).

Layout of a record, big-endian, aligned to 8 bytes: magic uint32, checksum uint32 (CRC-32C of the rest),
sequence int64, flushed sequence int64, kind int8, length uint16, payload. `flushed sequence` is the last one
known to be durable when the record was written. It tells corruption from a torn write. A bad record that a later one
calls durable is corrupt. One that no record calls durable was torn by a crash, whatever lies behind it.

The file gets its name only when it is whole and durable. A whole one ends with a closing record, also where there
is no state to keep. So no crash leaves a journal without a valid first record: such a file was damaged. This holds
since the first version, so no older directory has a journal without records.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from contextlib import suppress

from protocol.records.crc import crc32c
from storage.disk import Disk, DiskFullError, File
from storage.errors import JournalCorruptError
from storage.journal_records import Forget, GroupState, JournalRecord, decode_record, encode_record
from storage.log_types import GroupKey

JOURNAL_NAME = "journal"

_HEADER = struct.Struct(">IIqqbH")
_AFTER_CHECKSUM = 8
_MAGIC = 0x7661_7276
_MAGIC_BYTES = _MAGIC.to_bytes(4, "big")
_ALIGNMENT = 8

#: Kind of the record that closes a new file. It says only that all before it is durable.
CLOSING_KIND = 0

#: The file is extended by this much: half a second of votes, and small enough to fill in one loop iteration.
FILL_BYTES = 128 * 1024
#: It is extended before it has less room than this, so that there is some for votes when the disk is full.
SPARE_BYTES = FILL_BYTES // 2

#: More than any record takes.
MAX_RECORD_BYTES = 128

#: A rewrite pays when superseded records clearly outweigh live ones, and the file is worth the two flushes.
REWRITE_FACTOR = 4
REWRITE_MIN_BYTES = 256 * 1024


class JournalTicket:
    """One flush of the journal that is under way: durable up to `sequence` when it is done."""

    __slots__ = ("file", "sequence")

    def __init__(self, file: File, sequence: int) -> None:
        self.file = file
        self.sequence = sequence


def _frame(sequence: int, flushed_sequence: int, kind: int, payload: bytes) -> bytes:
    body = _HEADER.pack(_MAGIC, 0, sequence, flushed_sequence, kind, len(payload)) + payload
    checksum = crc32c(body[_AFTER_CHECKSUM:])
    padding = bytes(-len(body) % _ALIGNMENT)
    return body[:4] + checksum.to_bytes(4, "big") + body[_AFTER_CHECKSUM:] + padding


class _Frame:
    """A whole record found at a position of the file."""

    __slots__ = ("end", "flushed_sequence", "kind", "payload", "sequence")

    def __init__(self, sequence: int, flushed_sequence: int, kind: int, payload: bytes, end: int) -> None:
        self.sequence = sequence
        self.flushed_sequence = flushed_sequence
        self.kind = kind
        self.payload = payload
        self.end = end


def _parse_frame(data: memoryview, position: int) -> _Frame | None:
    if position + _HEADER.size > len(data):
        return None
    magic, checksum, sequence, flushed, kind, length = _HEADER.unpack_from(data, position)
    payload_start = position + _HEADER.size
    end = payload_start + length
    if magic != _MAGIC or end > len(data):
        return None
    if crc32c(data[position + _AFTER_CHECKSUM : end]) != checksum:
        return None
    return _Frame(sequence, flushed, kind, bytes(data[payload_start:end]), end + -end % _ALIGNMENT)


class Journal:
    """The state of every group of this directory, and the file that keeps it.

    `append` changes the state in memory at once. The record is durable when a flush that began later is over. Nothing
    that depends on it may leave the node before that.
    """

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._path = f"{disk.root}/{JOURNAL_NAME}"
        self._groups: dict[GroupKey, GroupState] = {}
        self._pending = bytearray()
        self._file: File
        #: Where the next record goes. Invariant: bytes of the file from here on are zero.
        self._end = 0
        #: Sequence of the last record appended, and of the last one known to be durable.
        self._sequence = 0
        self._flushed_sequence = 0
        #: Once the records in the file reach this size, it is rewritten with the live ones only.
        self._rewrite_at_bytes = REWRITE_MIN_BYTES

    @classmethod
    def open(cls, disk: Disk) -> Journal:
        """Read the journal, or write a new one where there is no file of that name.

        Raises JournalCorruptError where durable votes are lost: a record that was durable is bad, or the file has no
        record at all.
        """
        journal = cls(disk)
        if disk.exists(journal._path + ".tmp"):
            disk.unlink(journal._path + ".tmp")
        if not disk.exists(journal._path):
            journal._write_new_file()
            return journal
        # A process that was killed may have renamed a new file into place without making the name durable.
        disk.flush_directory(disk.root)
        journal._file = disk.open(journal._path)
        journal._recover()
        return journal

    # -- state

    def state(self, group: GroupKey) -> GroupState | None:
        """What is recorded of a group; None where nothing is (a lost identity, never one that has not voted)."""
        return self._groups.get(group)

    def groups(self) -> Iterable[GroupKey]:
        return self._groups.keys()

    @property
    def last_sequence(self) -> int:
        return self._sequence

    @property
    def flushed_sequence(self) -> int:
        return self._flushed_sequence

    @property
    def is_dirty(self) -> bool:
        return self._flushed_sequence < self._sequence

    # -- writing

    def append(self, record: JournalRecord) -> int:
        """Change the state and write the record with the next flush. Returns its sequence number."""
        self._apply(record)
        kind, payload = encode_record(record)
        self._sequence += 1
        self._pending += _frame(self._sequence, self._flushed_sequence, kind, payload)
        return self._sequence

    def begin_flush(self) -> JournalTicket:
        """Write the pending records. The caller flushes `ticket.file`, then calls `finish_flush`.

        No other ticket may be in flight: the file may be replaced here. Raises DiskFullError where there is no room for
        them; they stay pending.
        """
        if self._end + len(self._pending) > self._rewrite_at_bytes:
            with suppress(DiskFullError):  # the old file may have room
                self._write_new_file()
        self._write_pending()
        return JournalTicket(self._file, self._sequence)

    def finish_flush(self, ticket: JournalTicket) -> None:
        self._flushed_sequence = max(self._flushed_sequence, ticket.sequence)

    def make_room(self, records: int) -> None:
        """Have room for what is pending and so many records more, so that `flush` does not fail in the middle of a
        step that they belong to. Raises DiskFullError with nothing changed."""
        shortage = self._end + len(self._pending) + records * MAX_RECORD_BYTES - self._file.size
        if shortage > 0:
            self._file.append([bytes(shortage + FILL_BYTES)])

    def flush(self) -> None:
        """Make every record durable before returning. Blocks: for rare, ordered steps. Raises DiskFullError where there
        is no room for them; they stay pending."""
        self._write_pending()
        self._file.flush()
        self._flushed_sequence = self._sequence

    def close(self) -> None:
        self.flush()
        self._file.close()

    def _write_pending(self) -> None:
        if not self._pending:
            return
        shortage = self._end + len(self._pending) - self._file.size
        if shortage > -SPARE_BYTES:
            try:
                self._file.append([bytes(max(0, shortage) + FILL_BYTES)])
            except DiskFullError:
                if shortage > 0:
                    raise
        self._file.write_at(self._end, self._pending)
        self._end += len(self._pending)
        self._pending = bytearray()

    def _live_frames(self) -> Iterable[bytes]:
        """The whole state as records, closed by one that calls all of them durable. The closing record is always there:
        recovery takes a journal without any record for a damaged one."""
        sequence = self._sequence
        for group, state in self._groups.items():
            for record in state.records(group):
                sequence += 1
                yield _frame(sequence, sequence - 1, *encode_record(record))
        yield _frame(sequence + 1, sequence, CLOSING_KIND, b"")

    def _write_new_file(self) -> None:
        """Write the live state into a new file, durably, and put it in the place of the old one."""
        temporary = self._path + ".tmp"
        file = self._disk.open(temporary, create=True)
        file.truncate(0)
        frames = list(self._live_frames())
        try:
            file.append([b"".join(frames), bytes(FILL_BYTES)])
        except DiskFullError:
            file.close()
            self._disk.unlink(temporary)
            raise
        file.flush()
        file.close()
        self._disk.rename(temporary, self._path)
        self._disk.flush_directory(self._disk.root)
        self._file = self._disk.open(self._path)
        self._pending = bytearray()
        self._end = sum(map(len, frames))
        self._sequence = self._flushed_sequence = self._sequence + len(frames)
        self._rewrite_at_bytes = max(REWRITE_MIN_BYTES, REWRITE_FACTOR * self._end)

    # -- recovery

    def _recover(self) -> None:
        data = self._file.read(0, self._file.size)
        position = 0
        while (frame := _parse_frame(data, position)) is not None:
            if position and frame.sequence != self._sequence + 1:
                break
            self._sequence = frame.sequence
            self._flushed_sequence = max(self._flushed_sequence, frame.flushed_sequence)
            if frame.kind != CLOSING_KIND:
                self._apply(decode_record(frame.kind, frame.payload))
            position = frame.end
        if not position:
            raise JournalCorruptError(
                f"{self._path}: no valid record at its start, and it was written with one"
            )
        self._refuse_corruption(data, position)
        self._cut_torn_end(data, position)

    def _refuse_corruption(self, data: memoryview, position: int) -> None:
        """Raise JournalCorruptError if a record behind the first bad one calls that one durable."""
        rest = bytes(data[position:])
        at = rest.find(_MAGIC_BYTES)
        while at >= 0:
            frame = _parse_frame(data, position + at)
            if frame is not None and frame.flushed_sequence > self._sequence:
                raise JournalCorruptError(
                    f"{self._path} at {position}: record {self._sequence + 1} was durable and is unreadable"
                )
            at = rest.find(_MAGIC_BYTES, at + 1)

    def _cut_torn_end(self, data: memoryview, position: int) -> None:
        """Remove what a crash left behind the last whole record, and make that record and all before it durable.

        The records are written again. If a flush failed and the process ended, the page cache holds them as clean
        although they never reached the disk, and a flush alone would do nothing.
        """
        self._end = position
        if any(data[position:]):
            self._file.truncate(position)
        self._file.write_at(0, data[:position])
        self._file.flush()
        self._flushed_sequence = self._sequence

    def _apply(self, record: JournalRecord) -> None:
        if isinstance(record, Forget):
            self._groups.pop(record.group, None)
            return
        state = self._groups.setdefault(record.group, GroupState())
        record.apply(state)
