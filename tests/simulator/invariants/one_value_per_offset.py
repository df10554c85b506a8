"""State machine safety, for logs: an offset that was committed once holds the same batch for ever, on every
replica and for every reader (Raft, figure 3; replication.md section 6: watermarks never go back)."""

from __future__ import annotations

from hashlib import blake2b
from typing import NamedTuple

from protocol.records.batch import BatchHeader
from storage.log_types import GroupKey

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
    def __init__(self) -> None:
        self.values: dict[tuple[GroupKey, int], Value] = {}
        #: Content -> (group, base offset) wherever a batch of this content was ever committed.
        self.places: dict[bytes, list[tuple[GroupKey, int]]] = {}

    def seen(self, key: GroupKey, base_offset: int, value: Value) -> bool:
        """Returns whether nobody saw this offset before."""
        known = self.values.setdefault((key, base_offset), value)
        if known is value:
            self.places.setdefault(value.digest, []).append((key, base_offset))
            return True
        assert known == value, f"offset {base_offset} of {key} was {known} and is {value}"
        return False
