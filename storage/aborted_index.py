"""The aborted transactions of a segment: those whose ABORT marker lies in it (KIP-98).

A reader of committed data is sent them with the records and leaves out what they wrote. The file `.txnindex` has
Kafka's layout, a run of (version int16, producer id int64, first offset int64, last offset int64, last stable offset
int64), and behind it a CRC-32C (uint32), which Kafka's reader takes for the beginning of an entry and
ignores. Without the checksum a wrong bit would make aborted records visible.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left
from collections.abc import Iterator
from typing import NamedTuple

from protocol.records.crc import crc32c
from storage.disk import Buffer

_ENTRY = struct.Struct(">hqqqq")
_CHECKSUM = struct.Struct(">I")
_VERSION = 0
#: Comes before the entries in the checksum: four zero bytes are no empty index.
_SEED = b"txnindex"
#: Fields of an entry in memory.
_FIELDS = 4


class AbortedIndexDamagedError(Exception):
    """The bytes are no whole index. It is built again from the segment."""


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    """Of the ABORT marker."""
    last_stable_offset: int
    """When the marker was appended: where the earliest transaction begins that was still open, or behind the marker.
    Whatever is aborted later begins at or above it."""


class AbortedIndex:
    """In the order of the markers. Packed: there may be millions."""

    __slots__ = ("_last_offsets", "_values")

    #: Invariant: `_last_offsets` rises strictly, and `_values` has `_FIELDS` numbers for each of them.
    _last_offsets: array[int]
    _values: array[int]

    def __init__(self) -> None:
        self._last_offsets = array("q")
        self._values = array("q")

    def __len__(self) -> int:
        return len(self._last_offsets)

    def __iter__(self) -> Iterator[AbortedTransaction]:
        return map(self._entry, range(len(self)))

    def _entry(self, at: int) -> AbortedTransaction:
        return AbortedTransaction(*self._values[at * _FIELDS : (at + 1) * _FIELDS])

    def add(self, aborted: AbortedTransaction) -> None:
        """Does nothing for one that is there already: a replay meets it again."""
        if not self._last_offsets or aborted.last_offset > self._last_offsets[-1]:
            self._last_offsets.append(aborted.last_offset)
            self._values.extend(aborted)

    def truncate(self, end_offset: int) -> None:
        """Drop those whose marker is at or above this offset."""
        count = bisect_left(self._last_offsets, end_offset)
        del self._last_offsets[count:]
        del self._values[count * _FIELDS :]

    def lies_within(self, from_offset: int, below_offset: int) -> bool:
        """Whether all markers are at or above the one offset and below the other."""
        offsets = self._last_offsets
        return not offsets or from_offset <= offsets[0] <= offsets[-1] < below_offset

    def overlapping(self, from_offset: int, below_offset: int) -> tuple[list[AbortedTransaction], bool]:
        """Those that have records in [from_offset, below_offset), and whether all of them are found: markers in later
        segments end only transactions that begin at or above `below_offset`."""
        found: list[AbortedTransaction] = []
        for at in range(bisect_left(self._last_offsets, from_offset), len(self)):
            aborted = self._entry(at)
            if aborted.first_offset < below_offset:
                found.append(aborted)
            if aborted.last_stable_offset >= below_offset:
                return found, True
        return found, False

    def encode(self) -> bytes:
        entries = b"".join(_ENTRY.pack(_VERSION, *aborted) for aborted in self)
        return entries + _CHECKSUM.pack(crc32c(_SEED + entries))

    @classmethod
    def decode(cls, data: Buffer) -> AbortedIndex:
        """Raises AbortedIndexDamagedError."""
        view = memoryview(data)
        size_bytes = len(view) - _CHECKSUM.size
        if size_bytes < 0 or size_bytes % _ENTRY.size:
            raise AbortedIndexDamagedError(f"{len(view)} bytes")
        (checksum,) = _CHECKSUM.unpack_from(view, size_bytes)
        if crc32c(_SEED + view[:size_bytes]) != checksum:
            raise AbortedIndexDamagedError("the checksum is wrong")
        index = cls()
        for version, *fields in _ENTRY.iter_unpack(view[:size_bytes]):
            aborted = AbortedTransaction(*fields)
            if version != _VERSION or not 0 <= aborted.first_offset < aborted.last_offset:
                raise AbortedIndexDamagedError(f"version {version}, {aborted}")
            if index._last_offsets and aborted.last_offset <= index._last_offsets[-1]:
                raise AbortedIndexDamagedError(f"{aborted} behind {index._last_offsets[-1]}")
            index.add(aborted)
        return index
