"""DescribeQuorum (55; KIP-595). Times of followers: KIP-836, 1+. Directory ids and nodes: KIP-853, 2+."""

from __future__ import annotations

from uuid import UUID as Uuid

from protocol.schema import INT16, INT32, INT64, NIL_UUID, STRING, UINT16, UUID, Message, array, field


class RequestedPartition(Message):
    partition_index: int = field(INT32)


class RequestedTopic(Message):
    topic_name: str = field(STRING)
    partitions: list[RequestedPartition] = field(array(RequestedPartition))


class DescribeQuorumRequest(Message, api_key=55, versions="0-2", flexible="0+"):
    topics: list[RequestedTopic] = field(array(RequestedTopic))


class ReplicaState(Message):
    replica_id: int = field(INT32)
    replica_directory_id: Uuid = field(UUID, versions="2+", default=NIL_UUID)
    log_end_offset: int = field(INT64)
    """-1: not known."""
    last_fetch_timestamp_ms: int = field(INT64, versions="1+", default=-1)
    """In ms of the leader's wall clock. -1: not known, or the leader itself."""
    last_caught_up_timestamp_ms: int = field(INT64, versions="1+", default=-1)


class PartitionData(Message):
    partition_index: int = field(INT32)
    error_code: int = field(INT16, default=0)
    error_message: str | None = field(STRING, versions="2+", nullable="2+", default=None)
    leader_id: int = field(INT32, default=-1)
    leader_epoch: int = field(INT32, default=-1)
    high_watermark: int = field(INT64, default=-1)
    current_voters: list[ReplicaState] = field(array(ReplicaState), default_factory=list)
    observers: list[ReplicaState] = field(array(ReplicaState), default_factory=list)


class TopicData(Message):
    topic_name: str = field(STRING)
    partitions: list[PartitionData] = field(array(PartitionData))


class Listener(Message):
    name: str = field(STRING)
    host: str = field(STRING)
    port: int = field(UINT16)


class Node(Message):
    node_id: int = field(INT32)
    listeners: list[Listener] = field(array(Listener))


class DescribeQuorumResponse(Message, api_key=55, versions="0-2", flexible="0+"):
    error_code: int = field(INT16, default=0)
    error_message: str | None = field(STRING, versions="2+", nullable="2+", default=None)
    topics: list[TopicData] = field(array(TopicData), default_factory=list)
    nodes: list[Node] = field(array(Node), versions="2+", default_factory=list)
