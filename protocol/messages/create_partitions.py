"""CreatePartitions (37): adds partitions to topics (KIP-195)."""

from __future__ import annotations

from protocol.schema import BOOLEAN, INT16, INT32, STRING, Message, array, field


class CreatePartitionsAssignment(Message):
    broker_ids: list[int] = field(array(INT32))


class CreatePartitionsTopic(Message):
    name: str = field(STRING)
    count: int = field(INT32)
    """The new number of partitions of the topic."""
    assignments: list[CreatePartitionsAssignment] | None = field(
        array(CreatePartitionsAssignment), nullable="0+", default=None
    )
    """The replicas of each new partition. None: the brokers choose."""


class CreatePartitionsRequest(Message, api_key=37, versions="0-3", flexible="2+"):
    topics: list[CreatePartitionsTopic] = field(array(CreatePartitionsTopic))
    timeout_ms: int = field(INT32, default=60_000)
    validate_only: bool = field(BOOLEAN, default=False)


class CreatePartitionsTopicResult(Message):
    name: str = field(STRING)
    error_code: int = field(INT16, default=0)
    error_message: str | None = field(STRING, nullable="0+", default=None)


class CreatePartitionsResponse(Message, api_key=37, versions="0-3", flexible="2+"):
    throttle_time_ms: int = field(INT32, default=0)
    results: list[CreatePartitionsTopicResult] = field(array(CreatePartitionsTopicResult))
