"""State machine safety, for logs: an offset that was committed once holds the same batch for ever, on every
replica and for every reader (Raft, figure 3; replication.md section 6: watermarks never go back)."""

from __future__ import annotations

from hashlib import blake2b
from typing import NamedTuple

from protocol.records.batch import BatchHeader
from storage.log_types import GroupKey


class Value(NamedTuple):
    """A committed batch: everything that clients see of it, and the epoch under which they see it."""

    last_offset: int
    leader_epoch: int
    producer_id: int
    base_sequence: int
    digest: bytes


def value_of(header: BatchHeader, batch: memoryview) -> Value:
    digest = blake2b(batch, digest_size=16).digest()
    return Value(header.last_offset, header.leader_epoch, header.producer_id, header.base_sequence, digest)


class OneValuePerOffset:
    def __init__(self) -> None:
        self.values: dict[tuple[GroupKey, int], Value] = {}

    def seen(self, key: GroupKey, base_offset: int, value: Value) -> None:
        known = self.values.setdefault((key, base_offset), value)
        assert known == value, f"offset {base_offset} of {key} was {known} and is {value}"
