"""ConsumerGroupDescribe (69): the groups of KIP-848, with the assignments and targets of members."""

from __future__ import annotations

import uuid

from protocol.messages.metadata import OPERATIONS_NOT_REQUESTED
from protocol.schema import BOOLEAN, INT8, INT16, INT32, STRING, UUID, Message, array, field


class ConsumerGroupDescribeRequest(Message, api_key=69, versions="0-1", flexible="0+"):
    group_ids: list[str] = field(array(STRING))
    include_authorized_operations: bool = field(BOOLEAN, default=False)


class DescribedTopicPartitions(Message):
    topic_id: uuid.UUID = field(UUID)
    topic_name: str = field(STRING)
    partitions: list[int] = field(array(INT32))


class DescribedAssignment(Message):
    topic_partitions: list[DescribedTopicPartitions] = field(array(DescribedTopicPartitions))


class DescribedConsumerGroupMember(Message):
    member_id: str = field(STRING)
    instance_id: str | None = field(STRING, nullable="0+", default=None)
    rack_id: str | None = field(STRING, nullable="0+", default=None)
    member_epoch: int = field(INT32)
    client_id: str = field(STRING)
    client_host: str = field(STRING)
    subscribed_topic_names: list[str] = field(array(STRING))
    subscribed_topic_regex: str | None = field(STRING, nullable="0+", default=None)
    assignment: DescribedAssignment = field(DescribedAssignment)
    target_assignment: DescribedAssignment = field(DescribedAssignment)
    member_type: int = field(INT8, versions="1+", default=-1)
    """-1: not known; 0: classic protocol; 1: consumer protocol."""


class DescribedConsumerGroup(Message):
    error_code: int = field(INT16, default=0)
    error_message: str | None = field(STRING, nullable="0+", default=None)
    group_id: str = field(STRING)
    group_state: str = field(STRING, default="")
    group_epoch: int = field(INT32, default=0)
    assignment_epoch: int = field(INT32, default=0)
    assignor_name: str = field(STRING, default="")
    members: list[DescribedConsumerGroupMember] = field(
        array(DescribedConsumerGroupMember), default_factory=list
    )
    authorized_operations: int = field(INT32, default=OPERATIONS_NOT_REQUESTED)


class ConsumerGroupDescribeResponse(Message, api_key=69, versions="0-1", flexible="0+"):
    throttle_time_ms: int = field(INT32, default=0)
    groups: list[DescribedConsumerGroup] = field(array(DescribedConsumerGroup))
