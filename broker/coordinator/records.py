"""Records of a coordinator: how they lie in the log, and how those of one decision are batched."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

R = TypeVar("R")

#: A record's key and value as they lie in the log. The value of a tombstone is None.
EncodedRecord = tuple[bytes, bytes | None]

#: The most that a tombstone and its batch take beside the key.
_TOMBSTONE_OVERHEAD_BYTES = 128


@dataclass(frozen=True, slots=True)
class RecordCodec(Generic[R]):
    """The record formats of one internal topic."""

    encode: Callable[[R], EncodedRecord]
    """Raises KafkaError for a record that its format cannot hold."""
    decode: Callable[[memoryview, memoryview | None], R | None]
    """None: a type of record that this build does not know; it is passed over. Raises ProtocolError for bytes that are
    not a record of a known type and version."""


def split_into_batches(
    records: Sequence[EncodedRecord], max_batch_bytes: int
) -> Iterator[list[EncodedRecord]]:
    """The batches of one decision. There is one, because whoever loads the log must not see half of a decision. Only a
    decision of tombstones alone is split: any part of it may be kept, and it may not fit into one batch."""
    are_tombstones = all(value is None for _, value in records)
    batch: list[EncodedRecord] = []
    size_bytes = 0
    for key, value in records:
        size_bytes += len(key) + _TOMBSTONE_OVERHEAD_BYTES
        if are_tombstones and batch and size_bytes > max_batch_bytes:
            yield batch
            batch, size_bytes = [], len(key) + _TOMBSTONE_OVERHEAD_BYTES
        batch.append((key, value))
    yield batch
