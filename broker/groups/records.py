"""Records of `__consumer_offsets` as values: a typed key, and a typed value or a tombstone."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from protocol.codec import decoder, encoder
from protocol.errors import ErrorCode, KafkaError, ProtocolError
from protocol.group_records import RECORD_TYPES, OffsetCommitKey, OffsetCommitValue
from protocol.schema import Message

_INT16 = struct.Struct(">h")
_TYPE_OF = {key: number for number, (key, _, _) in RECORD_TYPES.items()}
_VALUES = {number: (value, version) for number, (_, value, version) in RECORD_TYPES.items()}
#: Of before Kafka 0.9; written by nobody, and the same as type 1.
_LEGACY_OFFSET_COMMIT = 0
_VERSION_WITH_EXPIRY = 1
#: What a removal and its batch take beside the key, at the most.
_OVERHEAD_BYTES = 128


@dataclass(frozen=True, slots=True)
class GroupRecord:
    """`key` is one of the keys of protocol.group_records; `value` is that key's value, or None: a tombstone."""

    key: Message
    value: Message | None


def encode(record: GroupRecord) -> tuple[bytes, bytes | None]:
    """(key, value) as they lie in the log. Raises KafkaError for a text that its field cannot hold: who took it from a
    request should have looked (broker.groups.group.check_texts)."""
    try:
        return _encode(record)
    except struct.error as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"no record can hold this: {error}") from error


def encode_parts(
    records: Sequence[GroupRecord], max_batch_bytes: int
) -> Iterator[list[tuple[bytes, bytes | None]]]:
    """What has to be appended as one batch: all of a decision, or whoever loads it would see half of one. But of
    removals any part may be kept, and a group may have more offsets than a batch has room for."""
    part: list[tuple[bytes, bytes | None]] = []
    size_bytes = 0
    are_removals = all(record.value is None for record in records)
    for record in records:
        key, value = encode(record)
        size_bytes += len(key) + _OVERHEAD_BYTES
        if are_removals and part and size_bytes > max_batch_bytes:
            yield part
            part, size_bytes = [], len(key) + _OVERHEAD_BYTES
        part.append((key, value))
    yield part


def _encode(record: GroupRecord) -> tuple[bytes, bytes | None]:
    number = _TYPE_OF[type(record.key)]
    key = _INT16.pack(number) + encoder(type(record.key), 0)(record.key)
    if record.value is None:
        return key, None
    value_type, version = _VALUES[number]
    assert isinstance(record.value, value_type), "a key's value"
    if isinstance(record.value, OffsetCommitValue) and record.value.expire_timestamp_ms >= 0:
        version = _VERSION_WITH_EXPIRY
    return key, _INT16.pack(version) + encoder(value_type, version)(record.value)


def decode(key: memoryview, value: memoryview | None) -> GroupRecord | None:
    """None: a type that this build does not know (share and streams groups have theirs in the same topic).

    Raises ProtocolError for what is not a record of a known type, or of a newer version of it.
    """
    if len(key) < _INT16.size:
        raise ProtocolError(f"a group record's key has {len(key)} bytes")
    (number,) = _INT16.unpack_from(key)
    if number == _LEGACY_OFFSET_COMMIT:
        number = _TYPE_OF[OffsetCommitKey]
    if number not in RECORD_TYPES:
        return None
    key_type, value_type, _ = RECORD_TYPES[number]
    decoded_key, _ = decoder(key_type, 0)(key, _INT16.size)
    if value is None:
        return GroupRecord(decoded_key, None)
    if len(value) < _INT16.size:
        raise ProtocolError(f"a group record's value has {len(value)} bytes")
    (version,) = _INT16.unpack_from(value)
    decoded_value, _ = decoder(value_type, version)(value, _INT16.size)
    return GroupRecord(decoded_key, decoded_value)
