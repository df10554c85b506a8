"""Produce (0). Versions 10+ name the current leader (KIP-951). With 12+ a transactional request adds its partitions to
the transaction (KIP-890). From 13 on topics are given by id."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID as Uuid

from protocol.schema import (
    INT16,
    INT32,
    INT64,
    NIL_UUID,
    RECORDS,
    STRING,
    UUID,
    Buffer,
    Message,
    array,
    field,
)


class PartitionProduceData(Message):
    index: int = field(INT32)
    records: memoryview | None = field(RECORDS, nullable="0+")
    """A decoded value is a slice of the frame, and valid only as long as the frame is."""


class TopicProduceData(Message):
    name: str = field(STRING, versions="0-12", default="")
    topic_id: Uuid = field(UUID, versions="13+", default=NIL_UUID)
    partition_data: list[PartitionProduceData] = field(array(PartitionProduceData))


class ProduceRequest(Message, api_key=0, versions="3-13", flexible="9+"):
    transactional_id: str | None = field(STRING, nullable="0+", default=None)
    acks: int = field(INT16)
    """0: no answer; 1: the leader has the records; -1: the records are committed."""
    timeout_ms: int = field(INT32)
    topic_data: list[TopicProduceData] = field(array(TopicProduceData))


class BatchIndexAndErrorMessage(Message):
    batch_index: int = field(INT32)
    batch_index_error_message: str | None = field(STRING, nullable="0+", default=None)


class LeaderIdAndEpoch(Message):
    leader_id: int = field(INT32, default=-1)
    leader_epoch: int = field(INT32, default=-1)


class PartitionProduceResponse(Message):
    index: int = field(INT32)
    error_code: int = field(INT16, default=0)
    base_offset: int = field(INT64, default=-1)
    log_append_time_ms: int = field(INT64, default=-1)
    """-1 unless message.timestamp.type is LogAppendTime."""
    log_start_offset: int = field(INT64, versions="5+", default=-1)
    record_errors: list[BatchIndexAndErrorMessage] = field(
        array(BatchIndexAndErrorMessage), versions="8+", default_factory=list
    )
    error_message: str | None = field(STRING, versions="8+", nullable="8+", default=None)
    current_leader: LeaderIdAndEpoch | None = field(LeaderIdAndEpoch, versions="10+", tag=0, default=None)


class TopicProduceResponse(Message):
    name: str = field(STRING, versions="0-12", default="")
    topic_id: Uuid = field(UUID, versions="13+", default=NIL_UUID)
    partition_responses: list[PartitionProduceResponse] = field(array(PartitionProduceResponse))


class NodeEndpoint(Message):
    node_id: int = field(INT32)
    host: str = field(STRING)
    port: int = field(INT32)
    rack: str | None = field(STRING, nullable="0+", default=None)


class ProduceResponse(Message, api_key=0, versions="3-13", flexible="9+"):
    responses: list[TopicProduceResponse] = field(array(TopicProduceResponse))
    throttle_time_ms: int = field(INT32, default=0)
    node_endpoints: list[NodeEndpoint] = field(
        array(NodeEndpoint), versions="10+", tag=0, default_factory=list
    )


RecordData = Buffer | Sequence[Buffer] | None
"""Records to be encoded, in one buffer or several. They are not joined before they reach the socket."""
