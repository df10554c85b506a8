"""TxnOffsetCommit (28): offsets that are committed with a transaction. Versions 3+ name the member (KIP-447)."""

from __future__ import annotations

from protocol.schema import INT16, INT32, INT64, STRING, Message, array, field


class TxnOffsetCommitRequestPartition(Message):
    partition_index: int = field(INT32)
    committed_offset: int = field(INT64)
    committed_leader_epoch: int = field(INT32, versions="2+", default=-1)
    committed_metadata: str | None = field(STRING, nullable="0+", default=None)


class TxnOffsetCommitRequestTopic(Message):
    name: str = field(STRING)
    partitions: list[TxnOffsetCommitRequestPartition] = field(array(TxnOffsetCommitRequestPartition))


class TxnOffsetCommitRequest(Message, api_key=28, versions="0-5", flexible="3+"):
    transactional_id: str = field(STRING)
    group_id: str = field(STRING)
    producer_id: int = field(INT64)
    producer_epoch: int = field(INT16)
    generation_id: int = field(INT32, versions="3+", default=-1)
    member_id: str = field(STRING, versions="3+", default="")
    group_instance_id: str | None = field(STRING, versions="3+", nullable="3+", default=None)
    topics: list[TxnOffsetCommitRequestTopic] = field(array(TxnOffsetCommitRequestTopic))


class TxnOffsetCommitResponsePartition(Message):
    partition_index: int = field(INT32)
    error_code: int = field(INT16, default=0)


class TxnOffsetCommitResponseTopic(Message):
    name: str = field(STRING)
    partitions: list[TxnOffsetCommitResponsePartition] = field(array(TxnOffsetCommitResponsePartition))


class TxnOffsetCommitResponse(Message, api_key=28, versions="0-5", flexible="3+"):
    throttle_time_ms: int = field(INT32, default=0)
    topics: list[TxnOffsetCommitResponseTopic] = field(array(TxnOffsetCommitResponseTopic))
