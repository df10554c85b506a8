"""ConsumerGroupDescribe: a group of the consumer protocol, its members, their current and their target assignments.

Behaviour
- A group that does not exist, or uses the classic protocol, is GROUP_ID_NOT_FOUND: admin tools use this API first and
  then DescribeGroups.
- Topics that have been deleted are left out, because they have no name any more.

Versions: 1 has the protocol of each member.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

from broker.groups import consumer_shard
from broker.groups.assignors import Assignment
from broker.groups.consumer_requests import GroupDescription
from broker.groups.shard import Shard
from broker.handlers.describe_groups import name_operations
from broker.metadata.image import MetadataImage
from broker.serving import steps
from broker.serving.api import Api
from broker.serving.coordinator_answers import answer_about_keys
from broker.serving.steps import Steps
from protocol.api_keys import ApiKey
from protocol.errors import KafkaError
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


def handle(context: Context, request: Request, body: ConsumerGroupDescribeRequest) -> Steps:
    def look(shard: Shard, group_id: str) -> Generator[None, None, DescribedConsumerGroup]:
        return _described(context.image, consumer_shard.describe(shard, group_id))

    def reply(groups: dict[str, DescribedConsumerGroup]) -> Steps:
        described = list(groups.values())
        if body.include_authorized_operations:
            name_operations(described)
        yield from steps.reply(request, ConsumerGroupDescribeResponse(groups=described))

    return answer_about_keys(
        context, request, context.groups.reading(), dict.fromkeys(body.group_ids), look, _failed, reply
    )


def _failed(group_id: str, error: KafkaError) -> DescribedConsumerGroup:
    return DescribedConsumerGroup(group_id=group_id, error_code=error.code, error_message=error.message)


def _described(
    image: MetadataImage, group: GroupDescription
) -> Generator[None, None, DescribedConsumerGroup]:
    described = DescribedConsumerGroup(
        group_id=group.group_id,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.assignor,
        members=[],
    )
    for member in group.members:
        assignment = yield from _named(image, member.assignment)
        described.members.append(
            DescribedConsumerGroupMember(
                member_id=member.member_id,
                instance_id=member.subscription.instance_id,
                rack_id=member.subscription.rack_id,
                member_epoch=member.epoch,
                client_id=member.subscription.client_id,
                client_host=member.subscription.client_host,
                subscribed_topic_names=list(member.subscription.topic_names),
                subscribed_topic_regex=member.subscription.topic_regex,
                assignment=assignment,
                target_assignment=(yield from _named(image, member.target)),
                member_type=_CONSUMER_MEMBER,
            )
        )
        yield
    return described


def _named(image: MetadataImage, assignment: Assignment) -> Generator[None, None, DescribedAssignment]:
    described = DescribedAssignment(topic_partitions=[])
    for topic_id, partitions in assignment.items():
        record = image.topics.get(topic_id)
        if record is not None:
            described.topic_partitions.append(
                DescribedTopicPartitions(
                    topic_id=topic_id, topic_name=record.name, partitions=sorted(partitions)
                )
            )
        yield
    return described


API = Api(ApiKey.CONSUMER_GROUP_DESCRIBE, 0, 1, ConsumerGroupDescribeRequest, handle)
