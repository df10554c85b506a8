"""The newest offset of each key in the dirty part of a log, in bounded memory."""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

from protocol.records.batch import BatchHeader, parse_header
from storage.compaction.aborted_data import AbortedData
from storage.compaction.scan import check_batch, payload_of, scan_records

BUFFER_SETTING = "log.cleaner.dedupe.buffer.size"
DIGEST_BYTES: Final = 16
ENTRY_BYTES = DIGEST_BYTES + 8
"""What Kafka's map takes for a key: its digest and an offset."""


def capacity_of(buffer_bytes: int) -> int:
    """How many keys a map of this size holds. One entry in ten stays free, as in Kafka."""
    return buffer_bytes // ENTRY_BYTES * 9 // 10


class KeyMapTooSmallError(Exception):
    """One batch has more keys than the whole map holds. The log cannot be compacted with this setting."""

    def __init__(self, header: BatchHeader, capacity: int) -> None:
        enough_bytes = (header.count * 10 // 9 + 2) * ENTRY_BYTES
        super().__init__(
            f"the batch at offset {header.base_offset} has {header.count} records with more than {capacity} keys, "
            f"which is all that the key map holds. {BUFFER_SETTING} is enough with {enough_bytes} bytes per cleaner"
        )


class KeyMap:
    """The map of one pass. Batches of the dirty part are added in order, until one does not fit.

    A batch that does not fit whole is not begun. So `end_offset` is the end of a batch, the map knows all keys below
    it, and the next pass begins there.

    A key is known by its digest of 16 bytes, as in Kafka's map; a key of fewer bytes stands for itself. Two keys of one
    digest would be taken for the same key, and the older record of the two would be lost. Only the digest guards
    against that. Nobody knows how to make such a pair for BLAKE2b in less than about 2^64 attempts, and the chance of
    one among 10^9 keys is 10^-21. MD5, which Kafka uses, does not qualify: anybody makes two keys of one MD5 in a
    second, and who may write to a topic would make the broker lose a record that another client wrote. To compare whole
    keys, their bytes would have to be in memory, and those have no bound.

    Invariants: every offset in the map is below `end_offset`. There are at most `capacity` keys.
    """

    def __init__(self, buffer_bytes: int, start_offset: int) -> None:
        self.capacity = capacity_of(buffer_bytes)
        self.end_offset = start_offset
        self._newest: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._newest)

    def add_batch(self, batch: memoryview, aborted: AbortedData) -> bool:
        """Add the keys of the next batch of the dirty part. False: it does not fit, and the map ends before it.

        Control batches, the data of aborted transactions and records without a key add nothing. Raises
        KeyMapTooSmallError for a batch that no map of this size holds; KafkaError CORRUPT_MESSAGE, and what
        `decompress` raises.
        """
        header = parse_header(batch)
        assert header.next_offset > self.end_offset, f"batch {header.base_offset} below {self.end_offset}"
        check_batch(batch, header)
        if not (header.is_control or aborted.covers(header)):
            payload = payload_of(batch, header)
            base_offset = header.base_offset
            # In a map of its own first: a batch that turns out to be corrupt, or too large, leaves no trace.
            offsets: dict[bytes, int] = {}
            for _, _, offset_delta, _, _, key, _ in scan_records(payload, header):
                if key is not None:
                    offsets[_name(key)] = base_offset + offset_delta
                    if len(offsets) > self.capacity:
                        break  # A small batch may hold millions of records, if they are compressed.
            if not self._has_room_for(offsets):
                if not self._newest:
                    raise KeyMapTooSmallError(header, self.capacity)
                return False
            self._newest.update(offsets)
        self.end_offset = header.next_offset
        return True

    def _has_room_for(self, offsets: dict[bytes, int]) -> bool:
        room = self.capacity - len(self._newest)
        return len(offsets) <= room or sum(name not in self._newest for name in offsets) <= room

    def is_superseded(self, key: bytes, offset: int) -> bool:
        """Whether there is a newer record of the key below the end. Never true at or above the end."""
        newest = self._newest.get(_name(key))
        return newest is not None and newest > offset


def _name(key: bytes) -> bytes:
    """What stands for a key. A short one is no digest, because those have 16 bytes."""
    return key if len(key) < DIGEST_BYTES else blake2b(key, digest_size=DIGEST_BYTES).digest()
