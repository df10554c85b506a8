"""The newest offset of each key in the dirty part of a log, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable

from protocol.records.batch import BatchHeader, parse_header
from protocol.schema import Buffer
from storage.compaction.aborted_data import AbortedData
from storage.compaction.key_table import KeyTable, Split, new_table
from storage.compaction.scan import check_batch, payload_of
from storage.compaction.table_twin import DIGEST_BYTES

BUFFER_SETTING = "log.cleaner.dedupe.buffer.size"
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

    A key is known by its digest of 16 bytes, as in Kafka's map. Two keys of one digest would be taken for the same key,
    and the older record of the two would be lost. Only the digest guards against that, because to compare whole keys,
    their bytes would have to be in memory, and those have no bound. By chance it happens among 10^9 keys once in 10^21
    maps. And nobody can make it happen. The native table hashes with SipHash-2-4 under a key of 128 random bits, which
    each map has for itself and no digest of which leaves it: who does not know the key cannot do better than chance,
    and what collides in one map does not in the next. The twin has BLAKE2b, for which a pair takes about 2^64 attempts.
    MD5, which Kafka uses, does not qualify: anybody makes two keys of one MD5 in a second, and who may write to a
    topic would make the broker lose a record that another client wrote.

    Invariants: every offset in the map is below `end_offset`. There are at most `capacity` keys.
    """

    def __init__(
        self, buffer_bytes: int, start_offset: int, *, table: Callable[[int], KeyTable] = new_table
    ) -> None:
        self.capacity = capacity_of(buffer_bytes)
        self.end_offset = start_offset
        self._table = table(self.capacity)

    def __len__(self) -> int:
        return len(self._table)

    def add_batch(self, batch: memoryview, aborted: AbortedData) -> bool:
        """Add the keys of the next batch of the dirty part. False: it does not fit, and the map ends before it.

        Control batches, the data of aborted transactions and records without a key add nothing. Raises
        KeyMapTooSmallError for a batch that no map of this size holds; KafkaError CORRUPT_MESSAGE, and what
        `decompress` raises.
        """
        header = parse_header(batch)
        assert header.next_offset > self.end_offset, f"batch {header.base_offset} below {self.end_offset}"
        check_batch(batch, header)
        if not (header.is_control or aborted.covers(header)) and not self._table.add(
            payload_of(batch, header), header
        ):
            if not len(self._table):
                raise KeyMapTooSmallError(header, self.capacity)
            return False
        self.end_offset = header.next_offset
        return True

    def is_superseded(self, key: bytes, offset: int) -> bool:
        """Whether there is a newer record of the key below the end. Never true at or above the end."""
        return self._table.is_superseded(key, offset)

    def split(self, payload: Buffer, header: BatchHeader, *, tombstones_go: bool) -> Split:
        """Which records of a batch stay, as far as their keys decide. Raises KafkaError CORRUPT_MESSAGE."""
        return self._table.split(payload, header, tombstones_go=tombstones_go)
