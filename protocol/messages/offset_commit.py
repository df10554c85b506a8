"""OffsetCommit (8). Up to version 4 a commit has a retention. From version 10 on topics are given by id (KIP-848)."""

from __future__ import annotations

from uuid import UUID as Uuid

from protocol.schema import INT16, INT32, INT64, NIL_UUID, STRING, UUID, Message, array, field


class OffsetCommitRequestPartition(Message):
    partition_index: int = field(INT32)
    committed_offset: int = field(INT64)
    committed_leader_epoch: int = field(INT32, versions="6+", default=-1)
    committed_metadata: str | None = field(STRING, nullable="0+", default=None)


class OffsetCommitRequestTopic(Message):
    name: str = field(STRING, versions="0-9", default="")
    topic_id: Uuid = field(UUID, versions="10+", default=NIL_UUID)
    partitions: list[OffsetCommitRequestPartition] = field(array(OffsetCommitRequestPartition))


class OffsetCommitRequest(Message, api_key=8, versions="2-10", flexible="8+"):
    group_id: str = field(STRING)
    generation_id_or_member_epoch: int = field(INT32, default=-1)
    member_id: str = field(STRING, default="")
    group_instance_id: str | None = field(STRING, versions="7+", nullable="7+", default=None)
    retention_time_ms: int = field(INT64, versions="2-4", default=-1)
    topics: list[OffsetCommitRequestTopic] = field(array(OffsetCommitRequestTopic))


class OffsetCommitResponsePartition(Message):
    partition_index: int = field(INT32)
    error_code: int = field(INT16, default=0)


class OffsetCommitResponseTopic(Message):
    name: str = field(STRING, versions="0-9", default="")
    topic_id: Uuid = field(UUID, versions="10+", default=NIL_UUID)
    partitions: list[OffsetCommitResponsePartition] = field(array(OffsetCommitResponsePartition))


class OffsetCommitResponse(Message, api_key=8, versions="2-10", flexible="8+"):
    throttle_time_ms: int = field(INT32, versions="3+", default=0)
    topics: list[OffsetCommitResponseTopic] = field(array(OffsetCommitResponseTopic))
