"""Schemas of the records of `__transaction_state`: Kafka's key and value.

A key is its version (0) as int16, then the transactional id. A value is its version as int16, then the value.
broker.transactions.records puts both together.
"""

from __future__ import annotations

from protocol.schema import INT8, INT16, INT32, INT64, STRING, Message, array, field


class TransactionLogKey(Message, versions="0"):
    transactional_id: str = field(STRING)


class PartitionsSchema(Message):
    topic: str = field(STRING)
    partition_ids: list[int] = field(array(INT32))


class TransactionLogValue(Message, versions="0-1", flexible="1+"):
    producer_id: int = field(INT64)
    previous_producer_id: int = field(INT64, versions="1+", tag=0, default=-1)
    next_producer_id: int = field(INT64, versions="1+", tag=1, default=-1)
    producer_epoch: int = field(INT16)
    transaction_timeout_ms: int = field(INT32)
    transaction_status: int = field(INT8)
    transaction_partitions: list[PartitionsSchema] | None = field(array(PartitionsSchema), nullable="0+")
    transaction_last_update_timestamp_ms: int = field(INT64)
    transaction_start_timestamp_ms: int = field(INT64)
    client_transaction_version: int = field(INT16, versions="1+", tag=2, default=0)
    last_producer_epoch: int = field(INT16, versions="1+", tag=1000, default=-1)
    """A field of our own, which Kafka's readers pass over: the epoch before the last InitProducerId of the producer
    that had it. -1: it was another producer's."""
