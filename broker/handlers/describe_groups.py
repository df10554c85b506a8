"""DescribeGroups: state, protocol and members of groups of the classic protocol.

Behaviour
- The chosen protocol and the members' metadata are shown while the group is Stable, assignments always.
- A group that has only offsets is Empty. One that does not exist, or uses the consumer protocol, is Dead.
- Every group is answered once and by itself: NOT_COORDINATOR for groups that other brokers coordinate.
- Authorized operations, if requested, are all that apply to groups, because there is no authorizer.

Versions: 3 authorized operations; 4 instance ids; 5 flexible; 6 Dead is GROUP_ID_NOT_FOUND with a message (KIP-1043).
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import TYPE_CHECKING

from broker.groups.shard import Shard
from broker.serving import steps
from broker.serving.api import Api
from broker.serving.coordinator_answers import answer_about_keys
from broker.serving.steps import Steps
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.consumer_group_describe import DescribedConsumerGroup
from protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

if TYPE_CHECKING:
    from broker.network.request import Request
    from broker.serving.context import Context

#: Bits of Kafka's AclOperation that apply to a group: 3 read, 6 delete, 8 describe, 10 describe configs, 11 alter
#: configs.
_GROUP_OPERATIONS = sum(1 << operation for operation in (3, 6, 8, 10, 11))


def handle(context: Context, request: Request, body: DescribeGroupsRequest) -> Steps:
    def failed(group_id: str, error: KafkaError) -> DescribedGroup:
        return _failed(request.api_version, group_id, error.code)

    def reply(groups: dict[str, DescribedGroup]) -> Steps:
        described = list(groups.values())
        if body.include_authorized_operations:
            name_operations(described)
        yield from steps.reply(request, DescribeGroupsResponse(groups=described))

    return answer_about_keys(
        context, request, context.groups.reading(), dict.fromkeys(body.groups), _look, failed, reply
    )


def name_operations(groups: Iterable[DescribedGroup | DescribedConsumerGroup]) -> None:
    """There is no access control: everybody may do everything with a group."""
    for group in groups:
        if group.error_code == ErrorCode.NONE:
            group.authorized_operations = _GROUP_OPERATIONS


def _failed(version: int, group_id: str, error: ErrorCode) -> DescribedGroup:
    described = DescribedGroup(group_id=group_id, error_code=error)
    if error == ErrorCode.GROUP_ID_NOT_FOUND:
        described.group_state = "Dead"
        if version >= 6:
            described.error_message = f"Group {group_id} not found."
        else:
            described.error_code = ErrorCode.NONE
    return described


def _look(shard: Shard, group_id: str) -> Generator[None, None, DescribedGroup]:
    group = shard.describe_classic(group_id)
    yield
    described = DescribedGroup(
        group_id=group_id,
        group_state=group.state,
        protocol_type=group.protocol_type,
        protocol_data=group.protocol,
        members=[],
    )
    for each in group.members:
        member = DescribedGroupMember(
            member_id=each.member_id,
            group_instance_id=each.instance_id,
            client_id=each.client_id,
            client_host=each.client_host,
            member_metadata=each.metadata,
            member_assignment=each.assignment,
        )
        described.members.append(member)
        yield
    return described


API = Api(ApiKey.DESCRIBE_GROUPS, 0, 6, DescribeGroupsRequest, handle)
