"""OffsetForLeaderEpoch (23): where an epoch ended (KIP-101, KIP-320)."""

from __future__ import annotations

from protocol.schema import INT16, INT32, INT64, STRING, Message, array, field


class OffsetForLeaderPartition(Message):
    partition: int = field(INT32)
    current_leader_epoch: int = field(INT32, default=-1)
    leader_epoch: int = field(INT32)


class OffsetForLeaderTopic(Message):
    topic: str = field(STRING)
    partitions: list[OffsetForLeaderPartition] = field(array(OffsetForLeaderPartition))


class OffsetForLeaderEpochRequest(Message, api_key=23, versions="2-4", flexible="4+"):
    replica_id: int = field(INT32, versions="3+", default=-2)
    """-1: a consumer; -2: a client whose version has no such field."""
    topics: list[OffsetForLeaderTopic] = field(array(OffsetForLeaderTopic))


class EpochEndOffset(Message):
    error_code: int = field(INT16, default=0)
    partition: int = field(INT32)
    leader_epoch: int = field(INT32, default=-1)
    end_offset: int = field(INT64, default=-1)


class OffsetForLeaderTopicResult(Message):
    topic: str = field(STRING)
    partitions: list[EpochEndOffset] = field(array(EpochEndOffset))


class OffsetForLeaderEpochResponse(Message, api_key=23, versions="2-4", flexible="4+"):
    throttle_time_ms: int = field(INT32, default=0)
    topics: list[OffsetForLeaderTopicResult] = field(array(OffsetForLeaderTopicResult))
