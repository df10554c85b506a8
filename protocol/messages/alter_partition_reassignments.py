"""AlterPartitionReassignments (45; KIP-455). allow_replication_factor_change: KIP-860, 1+."""

from __future__ import annotations

from protocol.schema import BOOLEAN, INT16, INT32, STRING, Message, array, field


class ReassignablePartition(Message):
    partition_index: int = field(INT32)
    replicas: list[int] | None = field(array(INT32), nullable="0+", default=None)
    """Node ids, the preferred leader first. None: cancel the reassignment."""


class ReassignableTopic(Message):
    name: str = field(STRING)
    partitions: list[ReassignablePartition] = field(array(ReassignablePartition))


class AlterPartitionReassignmentsRequest(Message, api_key=45, versions="0-1", flexible="0+"):
    timeout_ms: int = field(INT32, default=60_000)
    allow_replication_factor_change: bool = field(BOOLEAN, versions="1+", default=True)
    topics: list[ReassignableTopic] = field(array(ReassignableTopic))


class ReassignablePartitionResponse(Message):
    partition_index: int = field(INT32)
    error_code: int = field(INT16, default=0)
    error_message: str | None = field(STRING, nullable="0+", default=None)


class ReassignableTopicResponse(Message):
    name: str = field(STRING)
    partitions: list[ReassignablePartitionResponse] = field(array(ReassignablePartitionResponse))


class AlterPartitionReassignmentsResponse(Message, api_key=45, versions="0-1", flexible="0+"):
    throttle_time_ms: int = field(INT32, default=0)
    allow_replication_factor_change: bool = field(BOOLEAN, versions="1+", default=True)
    error_code: int = field(INT16, default=0)
    error_message: str | None = field(STRING, nullable="0+", default=None)
    responses: list[ReassignableTopicResponse] = field(array(ReassignableTopicResponse))
