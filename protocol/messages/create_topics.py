"""CreateTopics (19). From version 5 on the answer has the resulting settings (KIP-525)."""

from __future__ import annotations

import uuid

from protocol.schema import BOOLEAN, INT8, INT16, INT32, NIL_UUID, STRING, UUID, Message, array, field


class CreatableReplicaAssignment(Message):
    partition_index: int = field(INT32)
    broker_ids: list[int] = field(array(INT32))


class CreatableTopicConfig(Message):
    name: str = field(STRING)
    value: str | None = field(STRING, nullable="0+")


class CreatableTopic(Message):
    name: str = field(STRING)
    num_partitions: int = field(INT32)
    """-1: num.partitions of the broker, or the number of `assignments`."""
    replication_factor: int = field(INT16)
    """-1: default.replication.factor of the broker, or as in `assignments`."""
    assignments: list[CreatableReplicaAssignment] = field(
        array(CreatableReplicaAssignment), default_factory=list
    )
    configs: list[CreatableTopicConfig] = field(array(CreatableTopicConfig), default_factory=list)


class CreateTopicsRequest(Message, api_key=19, versions="2-7", flexible="5+"):
    topics: list[CreatableTopic] = field(array(CreatableTopic))
    timeout_ms: int = field(INT32, default=60_000)
    validate_only: bool = field(BOOLEAN, default=False)


class CreatableTopicConfigs(Message):
    name: str = field(STRING)
    value: str | None = field(STRING, nullable="0+")
    read_only: bool = field(BOOLEAN, default=False)
    config_source: int = field(INT8)
    """1: topic; 4: static broker; 5: default. The Java AdminClient fails on a value outside 1 to 8."""
    is_sensitive: bool = field(BOOLEAN, default=False)


class CreatableTopicResult(Message):
    name: str = field(STRING)
    topic_id: uuid.UUID = field(UUID, versions="7+", default=NIL_UUID)
    error_code: int = field(INT16, default=0)
    error_message: str | None = field(STRING, nullable="0+", default=None)
    topic_config_error_code: int = field(INT16, versions="5+", tag=0, default=0)
    num_partitions: int = field(INT32, versions="5+", default=-1)
    replication_factor: int = field(INT16, versions="5+", default=-1)
    configs: list[CreatableTopicConfigs] | None = field(
        array(CreatableTopicConfigs), versions="5+", nullable="5+", default_factory=list
    )
    """We never send None: the Java AdminClient fails on it."""


class CreateTopicsResponse(Message, api_key=19, versions="2-7", flexible="5+"):
    throttle_time_ms: int = field(INT32, default=0)
    topics: list[CreatableTopicResult] = field(array(CreatableTopicResult))
