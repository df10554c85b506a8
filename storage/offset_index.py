"""Sparse maps from offsets and timestamps into a segment, in Kafka's file layouts.

`.index` is a run of (relative last offset int32, position int32): the batch that ends with that offset starts at that
position. `.timeindex` is a run of (timestamp ms int64, relative offset int32): no record up to that offset has a larger
timestamp. Both are big-endian and rise strictly. Either can be rebuilt from the segment.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right

from storage.disk import Buffer

INDEX_ENTRY_BYTES = 8
TIME_INDEX_ENTRY_BYTES = 12

_TIME_ENTRY = struct.Struct(">qi")


class IndexDamagedError(Exception):
    """The file is no index of its segment. The index is rebuilt from the segment."""


def _is_rising(values: array[int]) -> bool:
    return all(values[i] < values[i + 1] for i in range(len(values) - 1))


class OffsetIndex:
    """Positions of batches of a segment, about one entry per `index.interval.bytes`."""

    __slots__ = ("_base_offset", "_offsets", "_positions")

    #: Invariant: `_offsets` (relative last offsets) and `_positions` are equally long and rise strictly.
    _offsets: array[int]
    _positions: array[int]

    def __init__(self, base_offset: int) -> None:
        self._base_offset = base_offset
        self._offsets = array("i")
        self._positions = array("i")

    def __len__(self) -> int:
        return len(self._offsets)

    def add(self, last_offset: int, position: int) -> None:
        self._offsets.append(last_offset - self._base_offset)
        self._positions.append(position)

    def entry_at_or_before(self, offset: int) -> tuple[int, int] | None:
        """(last offset, position) of a batch from which a walk forward meets the batch that holds `offset`. None: the
        walk starts at the first batch."""
        # An entry names the last offset of its batch, so an entry above the target may be past its batch.
        return self._entry(bisect_right(self._offsets, offset - self._base_offset) - 1)

    def entry_below(self, position: int) -> tuple[int, int] | None:
        """(last offset, position) of the last indexed batch that starts at or before a byte position."""
        return self._entry(bisect_right(self._positions, position) - 1)

    def last(self) -> tuple[int, int]:
        """(last offset, position) of the last entry. Only for an index with entries."""
        return self._base_offset + self._offsets[-1], self._positions[-1]

    def _entry(self, at: int) -> tuple[int, int] | None:
        return (self._base_offset + self._offsets[at], self._positions[at]) if at >= 0 else None

    def last_position(self) -> int:
        return self._positions[-1] if self._positions else 0

    def truncate(self, size_bytes: int) -> None:
        """Drop entries of batches that start at or above `size_bytes`."""
        keep = bisect_right(self._positions, size_bytes - 1)
        del self._offsets[keep:]
        del self._positions[keep:]

    def encode(self) -> bytes:
        pairs = array("i", bytes(len(self) * INDEX_ENTRY_BYTES))
        pairs[::2] = self._offsets
        pairs[1::2] = self._positions
        if sys.byteorder == "little":
            pairs.byteswap()
        return pairs.tobytes()

    @classmethod
    def decode(cls, base_offset: int, data: Buffer, segment_bytes: int) -> OffsetIndex:
        """Raises IndexDamagedError if the data cannot be the index of a segment of `segment_bytes`."""
        if len(data) % INDEX_ENTRY_BYTES:
            raise IndexDamagedError("not a whole number of entries")
        pairs = array("i")
        pairs.frombytes(data)
        if sys.byteorder == "little":
            pairs.byteswap()
        index = cls(base_offset)
        index._offsets = pairs[::2]
        index._positions = pairs[1::2]
        if not _is_rising(index._offsets) or not _is_rising(index._positions):
            raise IndexDamagedError("entries out of order")
        if len(index) and (index._positions[0] < 0 or index._positions[-1] >= segment_bytes):
            raise IndexDamagedError("an entry beyond the segment")
        return index


class TimeIndex:
    """The largest timestamp so far: an entry is added with an index entry, if the timestamp has risen."""

    __slots__ = ("_base_offset", "_offsets", "_timestamps")

    #: Invariant: equally long; both rise strictly.
    _timestamps: array[int]
    _offsets: array[int]

    def __init__(self, base_offset: int) -> None:
        self._base_offset = base_offset
        self._timestamps = array("q")
        self._offsets = array("i")

    def __len__(self) -> int:
        return len(self._timestamps)

    def add(self, timestamp_ms: int, offset: int) -> None:
        """`timestamp_ms`, at `offset`, is the largest so far. Ignored if it is not larger than the last entry's."""
        if not self._timestamps or timestamp_ms > self._timestamps[-1]:
            self._timestamps.append(timestamp_ms)
            self._offsets.append(offset - self._base_offset)

    def entry_before(self, timestamp_ms: int) -> tuple[int, int] | None:
        """(timestamp ms, offset) of the last entry with a smaller timestamp. None: there is none."""
        return self._entry(bisect_right(self._timestamps, timestamp_ms - 1) - 1)

    def entry_below(self, offset: int) -> tuple[int, int] | None:
        """(timestamp ms, offset) of the last entry below an offset: the largest timestamp there. None: there is
        none."""
        return self._entry(bisect_left(self._offsets, offset - self._base_offset) - 1)

    def last(self) -> tuple[int, int] | None:
        """(timestamp ms, offset) of the last entry: the largest timestamp. None: there is none."""
        return self._entry(len(self) - 1)

    def _entry(self, at: int) -> tuple[int, int] | None:
        return (self._timestamps[at], self._base_offset + self._offsets[at]) if at >= 0 else None

    def truncate(self, end_offset: int) -> None:
        """Drop entries at or above `end_offset`."""
        keep = bisect_right(self._offsets, end_offset - self._base_offset - 1)
        del self._timestamps[keep:]
        del self._offsets[keep:]

    def encode(self) -> bytes:
        return b"".join(map(_TIME_ENTRY.pack, self._timestamps, self._offsets))

    @classmethod
    def decode(cls, base_offset: int, data: Buffer) -> TimeIndex:
        """Raises IndexDamagedError if the data is no time index."""
        if len(data) % TIME_INDEX_ENTRY_BYTES:
            raise IndexDamagedError("not a whole number of entries")
        index = cls(base_offset)
        for timestamp_ms, offset in _TIME_ENTRY.iter_unpack(data):
            index._timestamps.append(timestamp_ms)
            index._offsets.append(offset)
        if not _is_rising(index._timestamps) or not _is_rising(index._offsets):
            raise IndexDamagedError("entries out of order")
        return index
