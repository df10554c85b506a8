"""Schemas of the records of `__consumer_offsets`: Kafka's keys and values, by record type.

A key is its record type as int16, then the key's only version. A value is its version as int16, then the value.
broker.groups.records puts both together. kio has no schemas of these records, so they are compared with Kafka 4.3's
`DumpLogSegments --offsets-decoder`.
"""

from __future__ import annotations

from uuid import UUID as Uuid

from protocol.schema import BYTES, INT8, INT32, INT64, NIL_UUID, STRING, UUID, Message, array, field


class OffsetCommitKey(Message, versions="0"):
    """Type 1. Type 0, from before Kafka 0.9, has the same format."""

    group: str = field(STRING)
    topic: str = field(STRING)
    partition: int = field(INT32)


class OffsetCommitValue(Message, versions="0-4", flexible="4+"):
    offset: int = field(INT64)
    leader_epoch: int = field(INT32, versions="3+", default=-1)
    metadata: str = field(STRING, default="")
    commit_timestamp_ms: int = field(INT64)
    expire_timestamp_ms: int = field(INT64, versions="1", default=-1)
    topic_id: Uuid = field(UUID, versions="4+", tag=0, default=NIL_UUID)


class GroupMetadataKey(Message, versions="0"):
    """Type 2: a group of the classic protocol."""

    group: str = field(STRING)


class MemberMetadata(Message):
    member_id: str = field(STRING)
    group_instance_id: str | None = field(STRING, versions="3+", nullable="3+", default=None)
    client_id: str = field(STRING)
    client_host: str = field(STRING)
    rebalance_timeout_ms: int = field(INT32, versions="1+", default=0)
    session_timeout_ms: int = field(INT32)
    subscription: bytes = field(BYTES)
    assignment: bytes = field(BYTES)


class GroupMetadataValue(Message, versions="0-4", flexible="4+"):
    protocol_type: str = field(STRING)
    generation: int = field(INT32)
    protocol: str | None = field(STRING, nullable="0+")
    leader: str | None = field(STRING, nullable="0+")
    current_state_timestamp_ms: int = field(INT64, versions="2+", default=-1)
    members: list[MemberMetadata] = field(array(MemberMetadata))


class ConsumerGroupMetadataKey(Message, versions="0"):
    """Type 3: a group of the consumer protocol (KIP-848)."""

    group_id: str = field(STRING)


class ConsumerGroupMetadataValue(Message, versions="0", flexible="0+"):
    epoch: int = field(INT32)
    metadata_hash: int = field(INT64, tag=0, default=0)


class ConsumerGroupMemberMetadataKey(Message, versions="0"):
    """Type 5."""

    group_id: str = field(STRING)
    member_id: str = field(STRING)


class ConsumerGroupMemberMetadataValue(Message, versions="0", flexible="0+"):
    instance_id: str | None = field(STRING, nullable="0+", default=None)
    rack_id: str | None = field(STRING, nullable="0+", default=None)
    client_id: str = field(STRING)
    client_host: str = field(STRING)
    subscribed_topic_names: list[str] = field(array(STRING))
    subscribed_topic_regex: str | None = field(STRING, nullable="0+", default=None)
    rebalance_timeout_ms: int = field(INT32, default=-1)
    server_assignor: str | None = field(STRING, nullable="0+", default=None)


class ConsumerGroupTargetAssignmentMetadataKey(Message, versions="0"):
    """Type 6."""

    group_id: str = field(STRING)


class ConsumerGroupTargetAssignmentMetadataValue(Message, versions="0", flexible="0+"):
    assignment_epoch: int = field(INT32)
    assignment_timestamp_ms: int = field(INT64, tag=0, default=0)


class ConsumerGroupTargetAssignmentMemberKey(Message, versions="0"):
    """Type 7."""

    group_id: str = field(STRING)
    member_id: str = field(STRING)


class TopicPartitions(Message):
    topic_id: Uuid = field(UUID)
    partitions: list[int] = field(array(INT32))


class ConsumerGroupTargetAssignmentMemberValue(Message, versions="0", flexible="0+"):
    topic_partitions: list[TopicPartitions] = field(array(TopicPartitions))


class ConsumerGroupCurrentMemberAssignmentKey(Message, versions="0"):
    """Type 8."""

    group_id: str = field(STRING)
    member_id: str = field(STRING)


class OwnedPartitions(Message):
    topic_id: Uuid = field(UUID)
    partitions: list[int] = field(array(INT32))
    assignment_epochs: list[int] = field(array(INT32), tag=0, default_factory=list)
    """For each partition, the member epoch at which it was assigned (KIP-1251). Empty in records from before Kafka
    4.3."""


class ConsumerGroupCurrentMemberAssignmentValue(Message, versions="0", flexible="0+"):
    member_epoch: int = field(INT32)
    previous_member_epoch: int = field(INT32)
    state: int = field(INT8)
    assigned_partitions: list[OwnedPartitions] = field(array(OwnedPartitions))
    partitions_pending_revocation: list[OwnedPartitions] = field(array(OwnedPartitions))


class ConsumerGroupRegularExpressionKey(Message, versions="0"):
    """Type 16."""

    group_id: str = field(STRING)
    regular_expression: str = field(STRING)


class ConsumerGroupRegularExpressionValue(Message, versions="0", flexible="0+"):
    topics: list[str] = field(array(STRING))
    version: int = field(INT64)
    timestamp_ms: int = field(INT64)


#: Record type -> (key, value, the version in which we write the value).
RECORD_TYPES: dict[int, tuple[type[Message], type[Message], int]] = {
    1: (OffsetCommitKey, OffsetCommitValue, 4),
    2: (GroupMetadataKey, GroupMetadataValue, 3),
    3: (ConsumerGroupMetadataKey, ConsumerGroupMetadataValue, 0),
    5: (ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue, 0),
    6: (ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue, 0),
    7: (ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue, 0),
    8: (ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue, 0),
    16: (ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue, 0),
}
