"""ConsumerGroupHeartbeat (68): joining, heartbeats and leaving in the consumer protocol (KIP-848).

Version 1 adds the regular expression, and member ids that the client chooses (KIP-1082).
"""

from __future__ import annotations

import uuid

from protocol.schema import INT16, INT32, STRING, UUID, Message, array, field


class OwnedTopicPartitions(Message):
    topic_id: uuid.UUID = field(UUID)
    partitions: list[int] = field(array(INT32))


class ConsumerGroupHeartbeatRequest(Message, api_key=68, versions="0-1", flexible="0+"):
    """A field that has not changed since the last heartbeat is None (-1 for the timeout)."""

    group_id: str = field(STRING)
    member_id: str = field(STRING)
    member_epoch: int = field(INT32)
    """0: join; -1: leave; -2: a static member leaves and will be back."""
    instance_id: str | None = field(STRING, nullable="0+", default=None)
    rack_id: str | None = field(STRING, nullable="0+", default=None)
    rebalance_timeout_ms: int = field(INT32, default=-1)
    subscribed_topic_names: list[str] | None = field(array(STRING), nullable="0+", default=None)
    subscribed_topic_regex: str | None = field(STRING, versions="1+", nullable="1+", default=None)
    server_assignor: str | None = field(STRING, nullable="0+", default=None)
    topic_partitions: list[OwnedTopicPartitions] | None = field(
        array(OwnedTopicPartitions), nullable="0+", default=None
    )
    """The partitions that the member owns now."""


class AssignedTopicPartitions(Message):
    topic_id: uuid.UUID = field(UUID)
    partitions: list[int] = field(array(INT32))


class HeartbeatAssignment(Message):
    topic_partitions: list[AssignedTopicPartitions] = field(array(AssignedTopicPartitions))


class ConsumerGroupHeartbeatResponse(Message, api_key=68, versions="0-1", flexible="0+"):
    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16, default=0)
    error_message: str | None = field(STRING, nullable="0+", default=None)
    member_id: str | None = field(STRING, nullable="0+", default=None)
    member_epoch: int = field(INT32, default=0)
    heartbeat_interval_ms: int = field(INT32, default=0)
    assignment: HeartbeatAssignment | None = field(HeartbeatAssignment, nullable="0+", default=None)
    """None: it has not changed."""
