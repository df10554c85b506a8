"""The walk of `protocol.records.walk` in Python, for machines without the native module.

native/walk.c does the same, with the same messages. Only the memory differs: this one keeps what came of a record until
the record is complete.
"""

from __future__ import annotations

from typing import Final

from protocol.schema import Buffer

MAX_NAMED = 10_000
"""How many records of each kind are named at most. A compressed batch can hold millions."""

_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1
_NO_TIMESTAMP = -1
_VARINT_BYTES: Final = 5
_VARLONG_BYTES: Final = 10


class Walk:
    """One walk through the records of a batch: `feed` it with the payload, then `finish`. Both raise ValueError, whose
    text names the record, and do so again if they are called again.

    Given: the count and the base timestamp of the header, and
    - is_consecutive: whether offset deltas must be 0, 1, 2 ... Compaction leaves holes.
    - needs_keys; earliest_ms, latest_ms: which records are `keyless` and `misdated`. -1 is no timestamp, and is not.
    - from_delta: records with a smaller offset delta do not count for what follows.
    - wanted_ms: the first record with at least this timestamp is `found`.

    Found, complete after `finish`:
    - count: the records so far.
    - max_timestamp_ms, max_timestamp_delta: the largest timestamp, and the offset delta of the first record that has
      it. -1: there is none above -1.
    - found: (offset delta, timestamp), or None.
    - keyless, misdated: the first MAX_NAMED of these records, as (index in the batch, timestamp).
    """

    def __init__(
        self,
        count: int,
        base_timestamp_ms: int,
        is_consecutive: bool = True,
        needs_keys: bool = False,
        earliest_ms: int = _INT64_MIN,
        latest_ms: int = _INT64_MAX,
        from_delta: int = _INT64_MIN,
        wanted_ms: int = _INT64_MAX,
    ) -> None:
        self.count = 0
        self.max_timestamp_ms = self.max_timestamp_delta = -1
        self.found: tuple[int, int] | None = None
        self.keyless: list[tuple[int, int]] = []
        self.misdated: list[tuple[int, int]] = []
        self._expected = count
        self._base_timestamp_ms = base_timestamp_ms
        self._is_consecutive = is_consecutive
        self._needs_keys = needs_keys
        self._earliest_ms = earliest_ms
        self._latest_ms = latest_ms
        self._from_delta = from_delta
        self._wanted_ms = wanted_ms
        #: What came of a record that is not complete, and how many bytes of it are needed before it is looked at again.
        self._begun = bytearray()
        self._needed = 0
        self._fault: ValueError | None = None

    def feed(self, piece: Buffer) -> None:
        if self._fault is not None:
            raise self._fault
        if self._begun:
            self._begun += piece
            if len(self._begun) < self._needed:
                return
            piece = self._begun
        data = bytes(piece)
        pos = 0
        try:
            while pos < len(data):
                pos = self._record(data, pos)
        except IndexError:
            self._begun = bytearray(data[pos:])
            self._needed = _record_bytes(self._begun)
        except ValueError as fault:
            self._fault = fault
            raise
        else:
            self._begun = bytearray()

    def finish(self) -> None:
        if self._fault is not None:
            raise self._fault
        if self._begun:
            try:
                self._record(bytes(self._begun), 0)
            except IndexError:
                raise ValueError(f"the payload ends within record {self.count}") from None
        if self.count != self._expected:
            raise ValueError(f"{self.count} records instead of {self._expected}")

    def _record(self, data: bytes, pos: int) -> int:
        """Looks at the record at `pos` and returns the position behind it. Raises IndexError if it is not complete."""
        if self.count == self._expected:
            raise ValueError(f"{self.count} records, and bytes behind them")
        length, pos = self._number(data, pos, _VARINT_BYTES)
        if length < 0:
            raise self._bad(f"a length of {length}")
        end = pos + length
        if pos == len(data):
            raise IndexError
        # The attributes of a record are unused.
        timestamp_delta, pos = self._field(data, pos + 1, end, _VARLONG_BYTES)
        offset_delta, pos = self._field(data, pos, end)
        if self._is_consecutive and offset_delta != self.count:
            raise self._bad(f"its offset delta is {offset_delta}")
        key_bytes, pos = self._field(data, pos, end)
        pos = self._behind(pos, key_bytes, end, "a key")
        value_bytes, pos = self._field(data, pos, end)
        pos = self._behind(pos, value_bytes, end, "a value")
        headers, pos = self._field(data, pos, end)
        if not 0 <= headers <= (end - pos) // 2:  # A header takes at least two bytes.
            raise self._bad(f"{headers} headers")
        for _ in range(headers):
            header_bytes, pos = self._field(data, pos, end)
            if header_bytes < 0:
                raise self._bad("a header without a key")
            pos = self._behind(pos, header_bytes, end, "a header key")
            header_bytes, pos = self._field(data, pos, end)
            pos = self._behind(pos, header_bytes, end, "a header value")
        if pos > len(data):
            raise IndexError
        if pos != end:
            raise self._bad("its fields are shorter than its length")
        self._is_over(timestamp_delta, offset_delta, key_bytes >= 0)
        return pos

    def _is_over(self, timestamp_delta: int, offset_delta: int, has_key: bool) -> None:
        """The record is complete, with these deltas."""
        # It wraps at 64 bits, as in Java.
        timestamp_ms = (self._base_timestamp_ms + timestamp_delta + 2**63) % 2**64 - 2**63
        if offset_delta >= self._from_delta:
            if timestamp_ms > self.max_timestamp_ms:
                self.max_timestamp_ms = timestamp_ms
                self.max_timestamp_delta = offset_delta
            if timestamp_ms >= self._wanted_ms and self.found is None:
                self.found = (offset_delta, timestamp_ms)
        if self._needs_keys and not has_key and len(self.keyless) < MAX_NAMED:
            self.keyless.append((self.count, timestamp_ms))
        is_dated = self._earliest_ms <= timestamp_ms <= self._latest_ms or timestamp_ms == _NO_TIMESTAMP
        if not is_dated and len(self.misdated) < MAX_NAMED:
            self.misdated.append((self.count, timestamp_ms))
        self.count += 1

    def _field(self, data: bytes, pos: int, end: int, max_bytes: int = _VARINT_BYTES) -> tuple[int, int]:
        """A number within a record that ends at `end`, and the position behind it."""
        byte = data[pos]
        if byte < 0x80:
            value, pos = (byte >> 1) ^ -(byte & 1), pos + 1
        else:
            value, pos = self._number(data, pos, max_bytes)
        if pos > end:
            raise self._bad("its fields go beyond its length")
        return value, pos

    def _behind(self, pos: int, size_bytes: int, end: int, what: str) -> int:
        """The position behind so many bytes. -1: the field is null and has none."""
        if size_bytes < -1 or pos + size_bytes > end:
            raise self._bad(f"{what} of {size_bytes} bytes")
        return pos if size_bytes < 0 else pos + size_bytes

    def _number(self, data: bytes, pos: int, max_bytes: int) -> tuple[int, int]:
        byte = data[pos]
        rest, following = byte & 0x7F, pos + 1
        if byte > 0x7F > data[following]:
            rest |= data[following] << 7
            return (rest >> 1) ^ -(rest & 1), pos + 2
        bits = 32 if max_bytes == _VARINT_BYTES else 64
        while byte > 0x7F and following - pos < max_bytes:
            byte = data[following]
            rest |= (byte & 0x7F) << 7 * (following - pos)
            following += 1
        if byte > 0x7F or rest >> bits:
            raise self._bad(f"a number of more than {bits} bits")
        return (rest >> 1) ^ -(rest & 1), following

    def _bad(self, what: str) -> ValueError:
        return ValueError(f"record {self.count}: {what}")


def _record_bytes(begun: bytearray) -> int:
    """How long the record is that begins so, with its length. 0: that cannot be told yet."""
    rest = shift = 0
    for pos, byte in enumerate(begun[:_VARINT_BYTES]):
        rest |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return pos + 1 + (rest >> 1)
    return 0
