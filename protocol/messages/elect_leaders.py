"""ElectLeaders (43; KIP-183, unclean elections: KIP-460, 1+)."""

from __future__ import annotations

from protocol.schema import INT8, INT16, INT32, STRING, Message, array, field


class TopicPartitions(Message):
    topic: str = field(STRING)
    partitions: list[int] = field(array(INT32))


class ElectLeadersRequest(Message, api_key=43, versions="0-2", flexible="2+"):
    election_type: int = field(INT8, versions="1+", default=0)
    """0: preferred replica; 1: unclean, any live replica, even if records are lost."""
    topic_partitions: list[TopicPartitions] | None = field(
        array(TopicPartitions), nullable="0+", default=None
    )
    """None: all topics."""
    timeout_ms: int = field(INT32, default=60_000)


class PartitionResult(Message):
    partition_id: int = field(INT32)
    error_code: int = field(INT16, default=0)
    error_message: str | None = field(STRING, nullable="0+", default=None)


class ReplicaElectionResult(Message):
    topic: str = field(STRING)
    partition_result: list[PartitionResult] = field(array(PartitionResult))


class ElectLeadersResponse(Message, api_key=43, versions="0-2", flexible="2+"):
    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16, versions="1+", default=0)
    replica_election_results: list[ReplicaElectionResult] = field(array(ReplicaElectionResult))
