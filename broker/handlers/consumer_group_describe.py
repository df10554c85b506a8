"""ConsumerGroupDescribe: a group of the consumer protocol, its members, their current and their target assignments.

Behaviour
- A group that does not exist, or uses the classic protocol, is GROUP_ID_NOT_FOUND: admin tools use this API first and
  then DescribeGroups.
- Topics that have been deleted are left out, because they have no name any more.

Versions: 1 has the protocol of each member.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from broker.groups import consumer_shard
from broker.groups.assignors import Assignment
from broker.groups.consumer_requests import GroupDescription
from broker.groups.shard import Shard
from broker.handlers.describe_groups import GROUP_OPERATIONS
from broker.metadata.image import MetadataImage
from broker.serving.answer_in_parts import AnswerInParts
from broker.serving.api import Api
from protocol.api_keys import ApiKey
from protocol.codec import encode
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedAssignment,
    DescribedConsumerGroup,
    DescribedConsumerGroupMember,
    DescribedTopicPartitions,
)

if TYPE_CHECKING:
    from broker.network.request import Request
    from broker.serving.context import Context

_CONSUMER_MEMBER = 1


def handle(context: Context, request: Request, body: ConsumerGroupDescribeRequest) -> None:
    def answer(groups: list[DescribedConsumerGroup]) -> None:
        for group in groups:
            if body.include_authorized_operations and group.error_code == ErrorCode.NONE:
                group.authorized_operations = GROUP_OPERATIONS
        request.reply_bytes(encode(ConsumerGroupDescribeResponse(groups=groups), request.api_version))

    group_ids = list(dict.fromkeys(body.group_ids))

    def ask(position: int, reply: Callable[[DescribedConsumerGroup], None]) -> None:
        group_id = group_ids[position]
        look = partial(_read_group, context.image, group_id)
        context.groups.read(group_id, reply, partial(_failed, group_id), look)

    AnswerInParts(context.loop, len(group_ids), ask, answer)


def _failed(group_id: str, error: ErrorCode, message: str | None = None) -> DescribedConsumerGroup:
    return DescribedConsumerGroup(group_id=group_id, error_code=error, error_message=message)


def _read_group(image: MetadataImage, group_id: str, shard: Shard) -> DescribedConsumerGroup:
    try:
        return _described(image, consumer_shard.describe(shard, group_id))
    except KafkaError as refused:
        return _failed(group_id, refused.code, refused.message)


def _described(image: MetadataImage, group: GroupDescription) -> DescribedConsumerGroup:
    return DescribedConsumerGroup(
        group_id=group.group_id,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.assignor,
        members=[
            DescribedConsumerGroupMember(
                member_id=member.member_id,
                instance_id=member.subscription.instance_id,
                rack_id=member.subscription.rack_id,
                member_epoch=member.epoch,
                client_id=member.subscription.client_id,
                client_host=member.subscription.client_host,
                subscribed_topic_names=list(member.subscription.topic_names),
                subscribed_topic_regex=member.subscription.topic_regex,
                assignment=_named(image, member.assignment),
                target_assignment=_named(image, member.target),
                member_type=_CONSUMER_MEMBER,
            )
            for member in group.members
        ],
    )


def _named(image: MetadataImage, assignment: Assignment) -> DescribedAssignment:
    return DescribedAssignment(
        topic_partitions=[
            DescribedTopicPartitions(
                topic_id=topic_id, topic_name=image.topics[topic_id].name, partitions=sorted(partitions)
            )
            for topic_id, partitions in assignment.items()
            if topic_id in image.topics
        ]
    )


API = Api(ApiKey.CONSUMER_GROUP_DESCRIBE, 0, 1, ConsumerGroupDescribeRequest, handle)
