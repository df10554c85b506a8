"""State machine safety, for logs: an offset that was committed once holds the same batch for ever, on every
replica and for every reader (Raft, figure 3; replication.md section 6: watermarks never go back). In a group that is
compacted: what compaction leaves of it (`tests.simulator.compaction_oracle`)."""

from __future__ import annotations

from hashlib import blake2b
from typing import NamedTuple

from protocol.records.batch import BatchHeader
from storage.log_types import GroupKey
from tests.simulator.compaction_oracle import CompactionOracle

#: Where a batch's attributes begin, and with them what its CRC covers (protocol.records.batch).
CONTENT_AT = 21


class Value(NamedTuple):
    """A committed batch: everything that clients see of it, and the epoch under which they see it."""

    last_offset: int
    leader_epoch: int
    producer_id: int
    base_sequence: int
    digest: bytes


def content_digest(batch: memoryview | bytes | bytearray) -> bytes:
    """Of what a producer wrote: all that the CRC covers. Offset and epoch, stamped by the leader, lie before it."""
    return blake2b(memoryview(batch)[CONTENT_AT:], digest_size=16).digest()


def value_of(header: BatchHeader, batch: memoryview) -> Value:
    return Value(
        header.last_offset,
        header.leader_epoch,
        header.producer_id,
        header.base_sequence,
        content_digest(batch),
    )


class OneValuePerOffset:
    def __init__(self, compaction: CompactionOracle) -> None:
        self._compaction = compaction
        #: As they were committed first.
        self.values: dict[tuple[GroupKey, int], Value] = {}
        #: Content -> (group, base offset) wherever a batch of this content was ever committed.
        self.places: dict[bytes, list[tuple[GroupKey, int]]] = {}

    def seen(self, key: GroupKey, header: BatchHeader, batch: memoryview, value: Value) -> bool:
        """A committed batch of any log. Returns whether nobody saw this offset before."""
        at = key, header.base_offset
        known = self.values.get(at)
        if known is None:
            self._compaction.written(key).add(header, batch)
            self.values[at] = value
            self.places.setdefault(value.digest, []).append(at)
            return True
        self._agree(key, header, batch, known, value)
        return False

    def check(self, key: GroupKey, header: BatchHeader, batch: memoryview) -> None:
        """Of a batch whose offset is known to be committed."""
        known = self.values.get((key, header.base_offset))
        self._agree(key, header, batch, known, value_of(header, batch))

    def _agree(
        self, key: GroupKey, header: BatchHeader, batch: memoryview, known: Value | None, value: Value
    ) -> None:
        if known == value:
            return
        assert self._compaction.is_compacted(key), (
            f"offset {header.base_offset} of {key} was {known} and is {value}"
        )
        self._compaction.check(key, header, batch, value.digest)

    # -- what was committed, for who compares logs that may be compacted

    def is_compacted(self, key: GroupKey) -> bool:
        return self._compaction.is_compacted(key)

    def original(self, key: GroupKey, base_offset: int) -> BatchHeader | None:
        """Of the batch that was committed there first."""
        found = self._compaction.written(key).at(base_offset)
        return None if found is None else found.header

    def originals(self, key: GroupKey, header: BatchHeader) -> list[BatchHeader]:
        """Of the batches for which one stands that was checked."""
        found = self._compaction.written(key).covered(header.base_offset, header.next_offset)
        return [original.header for original in found]
