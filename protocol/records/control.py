"""Control records: the markers that end a transaction in a partition (KIP-98).

    key: version int16 | type int16        value: version int16 | coordinator epoch int32

A marker is a batch of its own, with one record. Readers know by it what becomes of the records before. Compaction
leaves a remnant of it for a while, without the record: Varve's says in its attributes what the marker said.
"""

from __future__ import annotations

from struct import Struct
from struct import error as struct_error
from typing import NamedTuple

from protocol.errors import ErrorCode, KafkaError
from protocol.records.batch import BatchHeader
from protocol.records.builder import NewRecord, build_batch
from protocol.records.record import iter_records

_KEY = Struct(">hh")
_VALUE = Struct(">hi")
_VERSION = 0
_ABORT, _COMMIT = 0, 1
ATTR_WAS_ABORT = 0x100
ATTR_WAS_COMMIT = 0x200
"""Of a remnant: what its marker said. Kafka has not assigned these bits, and its clients ignore this byte."""


class Marker(NamedTuple):
    """What a transaction marker says beside its producer."""

    is_commit: bool
    coordinator_epoch: int


def build_marker(
    producer_id: int, producer_epoch: int, marker: Marker, timestamp_ms: int, *, leader_epoch: int = -1
) -> bytearray:
    """The batch of a marker. It has no sequence."""
    key = _KEY.pack(_VERSION, _COMMIT if marker.is_commit else _ABORT)
    value = _VALUE.pack(_VERSION, marker.coordinator_epoch)
    return build_batch(
        [NewRecord(key, value, timestamp_ms)],
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_control=True,
        is_transactional=True,
    )


def read_marker(batch: memoryview) -> Marker | None:
    """The marker of a control batch. None: compaction has removed the record, or it is of a type that this build does
    not know. Raises KafkaError CORRUPT_MESSAGE if it is malformed."""
    record = next(iter_records(batch), None)
    if record is None:
        return None
    try:
        _, kind = _KEY.unpack_from(record.key or b"")
        if kind not in (_ABORT, _COMMIT):
            return None
        _, coordinator_epoch = _VALUE.unpack_from(record.value or b"")
    except struct_error as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"a control record: {error}") from None
    return Marker(kind == _COMMIT, coordinator_epoch)


def remnant_is_commit(header: BatchHeader) -> bool | None:
    """What the marker of a remnant said: whether it was a COMMIT. None: this is no remnant, or one that Kafka made."""
    if not header.is_control or header.count:
        return None
    if header.attributes & ATTR_WAS_COMMIT:
        return True
    return False if header.attributes & ATTR_WAS_ABORT else None
