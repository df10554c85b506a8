"""DescribeProducers (61, KIP-664)."""

from __future__ import annotations

from protocol.schema import INT16, INT32, INT64, STRING, Message, array, field


class TopicRequest(Message):
    name: str = field(STRING)
    partition_indexes: list[int] = field(array(INT32))


class DescribeProducersRequest(Message, api_key=61, versions="0", flexible="0+"):
    topics: list[TopicRequest] = field(array(TopicRequest))


class ProducerState(Message):
    producer_id: int = field(INT64)
    producer_epoch: int = field(INT32)
    last_sequence: int = field(INT32, default=-1)
    last_timestamp: int = field(INT64, default=-1)
    coordinator_epoch: int = field(INT32)
    current_txn_start_offset: int = field(INT64, default=-1)


class PartitionResponse(Message):
    partition_index: int = field(INT32)
    error_code: int = field(INT16, default=0)
    error_message: str | None = field(STRING, nullable="0+", default=None)
    active_producers: list[ProducerState] = field(array(ProducerState), default_factory=list)


class TopicResponse(Message):
    name: str = field(STRING)
    partitions: list[PartitionResponse] = field(array(PartitionResponse))


class DescribeProducersResponse(Message, api_key=61, versions="0", flexible="0+"):
    throttle_time_ms: int = field(INT32, default=0)
    topics: list[TopicResponse] = field(array(TopicResponse))
