"""The records of `__consumer_offsets` as values: a typed key, and a typed value or none (a tombstone)."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from broker.coordinator.records import EncodedRecord, RecordCodec
from protocol.codec import decoder, encoder
from protocol.errors import ErrorCode, KafkaError, ProtocolError
from protocol.group_records import RECORD_TYPES, OffsetCommitKey, OffsetCommitValue
from protocol.schema import Message

_INT16 = struct.Struct(">h")
_TYPE_OF = {key: number for number, (key, _, _) in RECORD_TYPES.items()}
_VALUES = {number: (value, version) for number, (_, value, version) in RECORD_TYPES.items()}
#: From before Kafka 0.9. The same format as type 1, and nobody writes it any more.
_LEGACY_OFFSET_COMMIT = 0
_VERSION_WITH_EXPIRY = 1


@dataclass(frozen=True, slots=True)
class GroupRecord:
    """`key` is a key of protocol.group_records, `value` the value of that key. None: a tombstone."""

    key: Message
    value: Message | None


def encode(record: GroupRecord) -> EncodedRecord:
    """(key, value) as they lie in the log. Raises KafkaError for a string that is too long for its field. Strings of
    requests should have been checked before (broker.groups.group.check_texts)."""
    try:
        return _encode(record)
    except struct.error as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"no record can hold this: {error}") from error


def _encode(record: GroupRecord) -> EncodedRecord:
    number = _TYPE_OF[type(record.key)]
    key = _INT16.pack(number) + encoder(type(record.key), 0)(record.key)
    if record.value is None:
        return key, None
    value_type, version = _VALUES[number]
    assert isinstance(record.value, value_type), "the value is of the key's type"
    if isinstance(record.value, OffsetCommitValue) and record.value.expire_timestamp_ms >= 0:
        version = _VERSION_WITH_EXPIRY
    return key, _INT16.pack(version) + encoder(value_type, version)(record.value)


def decode(key: memoryview, value: memoryview | None) -> GroupRecord | None:
    """None: a record type that this build does not know. Share groups and streams groups use the same topic.

    Raises ProtocolError for bytes that are not a record, and for a known record type in an unknown version.
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


#: The record formats of `__consumer_offsets`.
GROUP_RECORDS = RecordCodec(encode, decode)
