"""The records of `__transaction_state`: a transactional id and what is known of it, in Kafka's format."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TypeVar

from broker.coordinator.records import EncodedRecord, RecordCodec
from broker.transactions.metadata import TopicPartition, TransactionMetadata
from broker.transactions.states import TransactionState
from protocol.codec import decoder, encoder
from protocol.errors import ErrorCode, KafkaError, ProtocolError
from protocol.schema import Message
from protocol.transaction_records import PartitionsSchema, TransactionLogKey, TransactionLogValue

M = TypeVar("M", bound=Message)

_INT16 = struct.Struct(">h")
_KEY_VERSION = 0
#: The version in which values are written. Version 0 is read, too.
_VALUE_VERSION = 1


@dataclass(frozen=True, slots=True)
class TransactionRecord:
    transactional_id: str
    metadata: TransactionMetadata | None
    """None: a tombstone. The id has expired."""


def encode(record: TransactionRecord) -> EncodedRecord:
    """(key, value) as they lie in the log. Raises KafkaError for a text that is too long for its field."""
    try:
        key = TransactionLogKey(transactional_id=record.transactional_id)
        encoded_key = _INT16.pack(_KEY_VERSION) + encoder(TransactionLogKey, _KEY_VERSION)(key)
    except struct.error as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"no record can hold this: {error}") from error
    if record.metadata is None:
        return encoded_key, None
    value = _to_value(record.metadata)
    return encoded_key, _INT16.pack(_VALUE_VERSION) + encoder(TransactionLogValue, _VALUE_VERSION)(value)


def decode(key: memoryview, value: memoryview | None) -> TransactionRecord | None:
    """Raises ProtocolError for bytes that are not a record of a known version. Kafka has one type of record here, so a
    key of another version is not passed over."""
    transactional_id = _decoded(TransactionLogKey, key).transactional_id
    if value is None:
        return TransactionRecord(transactional_id, None)
    return TransactionRecord(
        transactional_id, _from_value(transactional_id, _decoded(TransactionLogValue, value))
    )


def _decoded(cls: type[M], data: memoryview) -> M:
    if len(data) < _INT16.size:
        raise ProtocolError(f"a {cls.__name__} of {len(data)} bytes")
    (version,) = _INT16.unpack_from(data)
    message, _ = decoder(cls, version)(data, _INT16.size)
    return message


def _to_value(metadata: TransactionMetadata) -> TransactionLogValue:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(metadata.partitions):
        by_topic.setdefault(topic, []).append(partition)
    partitions = [PartitionsSchema(topic=topic, partition_ids=ids) for topic, ids in by_topic.items()]
    return TransactionLogValue(
        producer_id=metadata.producer_id,
        previous_producer_id=metadata.previous_producer_id,
        next_producer_id=metadata.next_producer_id,
        producer_epoch=metadata.epoch,
        transaction_timeout_ms=metadata.timeout_ms,
        transaction_status=metadata.state,
        # As Kafka writes it: null in the state Empty.
        transaction_partitions=None if metadata.state is TransactionState.EMPTY else partitions,
        transaction_last_update_timestamp_ms=metadata.updated_ms,
        transaction_start_timestamp_ms=metadata.started_ms,
        client_transaction_version=metadata.client_version,
        last_producer_epoch=metadata.last_epoch,
    )


def _from_value(transactional_id: str, value: TransactionLogValue) -> TransactionMetadata:
    try:
        state = TransactionState(value.transaction_status)
    except ValueError as error:
        raise ProtocolError(f"transaction state {value.transaction_status}") from error
    return TransactionMetadata(
        transactional_id,
        value.producer_id,
        value.producer_epoch,
        value.transaction_timeout_ms,
        state,
        value.transaction_last_update_timestamp_ms,
        frozenset(
            TopicPartition(each.topic, partition)
            for each in value.transaction_partitions or ()
            for partition in each.partition_ids
        ),
        value.transaction_start_timestamp_ms,
        value.last_producer_epoch,
        value.previous_producer_id,
        value.next_producer_id,
        value.client_transaction_version,
    )


#: The record format of `__transaction_state`.
TRANSACTION_RECORDS = RecordCodec(encode, decode)
