"""Fetch (1). Sessions: KIP-227, 7+. Topic ids instead of names: KIP-516, 13+. Node endpoints: KIP-951, 16+.

Only replicas use the fields of versions 17 (KIP-853) and 18 (KIP-1166)."""

from __future__ import annotations

import uuid

from protocol.messages import produce
from protocol.messages.produce import RecordData
from protocol.schema import INT8, INT16, INT32, INT64, NIL_UUID, RECORDS, STRING, UUID, Message, array, field

# The same structs in both APIs (KIP-951).
LeaderIdAndEpoch = produce.LeaderIdAndEpoch
NodeEndpoint = produce.NodeEndpoint


class FetchPartition(Message):
    partition: int = field(INT32)
    current_leader_epoch: int = field(INT32, versions="9+", default=-1)
    fetch_offset: int = field(INT64)
    last_fetched_epoch: int = field(INT32, versions="12+", default=-1)
    log_start_offset: int = field(INT64, versions="5+", default=-1)
    partition_max_bytes: int = field(INT32)
    replica_directory_id: uuid.UUID = field(UUID, versions="17+", tag=0, default=NIL_UUID)
    high_watermark: int = field(INT64, versions="18+", tag=1, default=2**63 - 1)


class FetchTopic(Message):
    topic: str = field(STRING, versions="0-12", default="")
    topic_id: uuid.UUID = field(UUID, versions="13+", default=NIL_UUID)
    partitions: list[FetchPartition] = field(array(FetchPartition))


class ForgottenTopic(Message):
    topic: str = field(STRING, versions="7-12", default="")
    topic_id: uuid.UUID = field(UUID, versions="13+", default=NIL_UUID)
    partitions: list[int] = field(array(INT32))


class ReplicaState(Message):
    replica_id: int = field(INT32, default=-1)
    replica_epoch: int = field(INT64, default=-1)


class FetchRequest(Message, api_key=1, versions="4-18", flexible="12+"):
    cluster_id: str | None = field(STRING, versions="12+", nullable="12+", tag=0, default=None)
    replica_id: int = field(INT32, versions="0-14", default=-1)
    replica_state: ReplicaState | None = field(ReplicaState, versions="15+", tag=1, default=None)
    max_wait_ms: int = field(INT32)
    min_bytes: int = field(INT32)
    max_bytes: int = field(INT32, default=0x7FFFFFFF)
    isolation_level: int = field(INT8, default=0)
    """0: read_uncommitted; 1: read_committed (KIP-98)."""
    session_id: int = field(INT32, versions="7+", default=0)
    session_epoch: int = field(INT32, versions="7+", default=-1)
    topics: list[FetchTopic] = field(array(FetchTopic))
    forgotten_topics_data: list[ForgottenTopic] = field(
        array(ForgottenTopic), versions="7+", default_factory=list
    )
    rack_id: str = field(STRING, versions="11+", default="")


class EpochEndOffset(Message):
    epoch: int = field(INT32, default=-1)
    end_offset: int = field(INT64, default=-1)


class SnapshotId(Message):
    end_offset: int = field(INT64, default=-1)
    epoch: int = field(INT32, default=-1)


class AbortedTransaction(Message):
    producer_id: int = field(INT64)
    first_offset: int = field(INT64)


class PartitionData(Message):
    partition_index: int = field(INT32)
    error_code: int = field(INT16, default=0)
    high_watermark: int = field(INT64, default=-1)
    last_stable_offset: int = field(INT64, default=-1)
    log_start_offset: int = field(INT64, versions="5+", default=-1)
    diverging_epoch: EpochEndOffset | None = field(EpochEndOffset, versions="12+", tag=0, default=None)
    current_leader: LeaderIdAndEpoch | None = field(LeaderIdAndEpoch, versions="12+", tag=1, default=None)
    snapshot_id: SnapshotId | None = field(SnapshotId, versions="12+", tag=2, default=None)
    aborted_transactions: list[AbortedTransaction] | None = field(
        array(AbortedTransaction), nullable="0+", default=None
    )
    """None for read_uncommitted, a list (perhaps empty) for read_committed."""
    preferred_read_replica: int = field(INT32, versions="11+", default=-1)
    records: RecordData = field(RECORDS, nullable="0+", default=None)


class FetchableTopicResponse(Message):
    topic: str = field(STRING, versions="0-12", default="")
    topic_id: uuid.UUID = field(UUID, versions="13+", default=NIL_UUID)
    partitions: list[PartitionData] = field(array(PartitionData))


class FetchResponse(Message, api_key=1, versions="4-18", flexible="12+"):
    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16, versions="7+", default=0)
    session_id: int = field(INT32, versions="7+", default=0)
    responses: list[FetchableTopicResponse] = field(array(FetchableTopicResponse))
    node_endpoints: list[NodeEndpoint] = field(
        array(NodeEndpoint), versions="16+", tag=0, default_factory=list
    )
