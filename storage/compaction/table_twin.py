"""What compaction does for each record, in Python: where the native module was not built, and to compare it with."""

from __future__ import annotations

from hashlib import blake2b
from typing import Final, NamedTuple

from protocol.records.batch import BatchHeader
from protocol.records.record import decode_varint, encode_varint
from protocol.schema import Buffer
from storage.compaction.scan import scan_records

DIGEST_BYTES: Final = 16


class Split(NamedTuple):
    """The records of a batch, divided into those that stay and those that go. All are counted."""

    kept: int
    payload: Buffer
    """The bytes of those that stay. The very payload if all do."""
    max_timestamp_ms: int
    """The latest of those that stay; the least number if none does."""
    superseded: int
    keyless: int
    expired: int
    """Tombstones that go."""
    tombstones: int
    """... that stay."""
    tombstone_bytes: int


class KeyTable:
    """The newest offset of each key that was added, and what that means for the records of a batch.

    Payloads are decompressed. All methods that are given one raise KafkaError CORRUPT_MESSAGE if it is malformed, and
    have changed nothing then.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._newest: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._newest)

    def add(self, payload: Buffer, header: BatchHeader) -> bool:
        """Add the keys of a batch, which lies behind all others. False: they are too many, and none was added."""
        base_offset = header.base_offset
        # In a dict of its own first: a batch that turns out to be corrupt, or too large, leaves no trace.
        offsets: dict[bytes, int] = {}
        for _, _, offset_delta, _, _, key, _ in scan_records(bytes(payload), header):
            # A small batch may hold millions of records, if they are compressed.
            if key is not None and len(offsets) <= self._capacity:
                offsets[_name(key)] = base_offset + offset_delta
        if not self._has_room_for(offsets):
            return False
        self._newest.update(offsets)
        return True

    def _has_room_for(self, offsets: dict[bytes, int]) -> bool:
        room = self._capacity - len(self._newest)
        return len(offsets) <= room or sum(name not in self._newest for name in offsets) <= room

    def is_superseded(self, key: bytes, offset: int) -> bool:
        newest = self._newest.get(_name(key))
        return newest is not None and newest > offset

    def split(self, payload: Buffer, header: BatchHeader, *, tombstones_go: bool) -> Split:
        """Superseded records and those without a key go. Tombstones that are the newest of their key go if so told."""
        data = bytes(payload)
        is_superseded = self.is_superseded
        base_offset, base_timestamp = header.base_offset, header.base_timestamp
        superseded = keyless = expired = tombstones = tombstone_bytes = 0
        kept: list[tuple[int, int]] = []
        max_timestamp_ms = -(2**63)
        for start, end, offset_delta, timestamp_delta, _, key, is_null in scan_records(data, header):
            if key is None:
                keyless += 1
            elif is_superseded(key, base_offset + offset_delta):
                superseded += 1
            elif is_null and tombstones_go:
                expired += 1
            else:
                if is_null:
                    tombstones += 1
                    tombstone_bytes += end - start
                max_timestamp_ms = max(max_timestamp_ms, wrapped(base_timestamp + timestamp_delta))
                kept.append((start, end))
        remaining = payload if len(kept) == header.count else _joined(data, kept)
        return Split(
            len(kept),
            remaining,
            max_timestamp_ms,
            superseded,
            keyless,
            expired,
            tombstones,
            tombstone_bytes,
        )


def rebased(payload: Buffer, shift_ms: int) -> bytes:
    """The records of a payload, which are known to be right, with timestamp deltas from another base. That lies
    `shift_ms` before the old one."""
    view = memoryview(payload)
    parts = []
    end = 0
    while end < len(view):
        length, attributes_at = decode_varint(view, end)
        timestamp_delta, behind_timestamp = decode_varint(view, attributes_at + 1)
        end = attributes_at + length
        body = bytes(view[attributes_at : attributes_at + 1])
        body += encode_varint(wrapped(timestamp_delta + shift_ms)) + view[behind_timestamp:end]
        parts.append(encode_varint(len(body)))
        parts.append(body)
    return b"".join(parts)


def wrapped(value: int) -> int:
    """A number of 64 bits, as Java gets it."""
    return (value + 2**63) % 2**64 - 2**63


def _name(key: bytes) -> bytes:
    """What stands for a key. A short one is no digest, because those have 16 bytes."""
    return key if len(key) < DIGEST_BYTES else blake2b(key, digest_size=DIGEST_BYTES).digest()


def _joined(data: bytes, kept: list[tuple[int, int]]) -> bytes:
    """Neighbours are copied together."""
    parts = []
    run_start = run_end = 0
    for start, end in kept:
        if start != run_end:
            parts.append(data[run_start:run_end])
            run_start = start
        run_end = end
    parts.append(data[run_start:run_end])
    return b"".join(parts)
