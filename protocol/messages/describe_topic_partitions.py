"""DescribeTopicPartitions (75): the partitions of topics, page by page (KIP-966)."""

from __future__ import annotations

import uuid

from protocol.messages.metadata import OPERATIONS_NOT_REQUESTED
from protocol.schema import BOOLEAN, INT16, INT32, STRING, UUID, Message, array, field


class TopicRequest(Message):
    name: str = field(STRING)


class Cursor(Message):
    """The position at which the next page begins."""

    topic_name: str = field(STRING)
    partition_index: int = field(INT32)


class DescribeTopicPartitionsRequest(Message, api_key=75, versions="0", flexible="0+"):
    topics: list[TopicRequest] = field(array(TopicRequest))
    """Empty: all topics."""
    response_partition_limit: int = field(INT32, default=2000)
    cursor: Cursor | None = field(Cursor, nullable="0+", default=None)


class DescribeTopicPartitionsResponsePartition(Message):
    error_code: int = field(INT16, default=0)
    partition_index: int = field(INT32)
    leader_id: int = field(INT32)
    leader_epoch: int = field(INT32, default=-1)
    replica_nodes: list[int] = field(array(INT32))
    isr_nodes: list[int] = field(array(INT32))
    eligible_leader_replicas: list[int] | None = field(array(INT32), nullable="0+", default_factory=list)
    """We never send None, here and in the next field: the Java AdminClient fails on it."""
    last_known_elr: list[int] | None = field(array(INT32), nullable="0+", default_factory=list)
    offline_replicas: list[int] = field(array(INT32))


class DescribeTopicPartitionsResponseTopic(Message):
    error_code: int = field(INT16, default=0)
    name: str | None = field(STRING, nullable="0+")
    topic_id: uuid.UUID = field(UUID)
    is_internal: bool = field(BOOLEAN, default=False)
    partitions: list[DescribeTopicPartitionsResponsePartition] = field(
        array(DescribeTopicPartitionsResponsePartition)
    )
    topic_authorized_operations: int = field(INT32, default=OPERATIONS_NOT_REQUESTED)


class DescribeTopicPartitionsResponse(Message, api_key=75, versions="0", flexible="0+"):
    throttle_time_ms: int = field(INT32, default=0)
    topics: list[DescribeTopicPartitionsResponseTopic] = field(array(DescribeTopicPartitionsResponseTopic))
    next_cursor: Cursor | None = field(Cursor, nullable="0+", default=None)
