"""JoinGroup: become, or stay, a member of a group of the classic protocol.

Behaviour
- The answer waits until the generation is complete: all members have joined, or the rebalance timeout is over. Only the
  leader of the group gets the list of members.
- A new member gets an id first and joins with it (MEMBER_ID_REQUIRED, KIP-394), unless it is static (KIP-345).
- Errors: INVALID_GROUP_ID, INVALID_SESSION_TIMEOUT, INCONSISTENT_GROUP_PROTOCOL (no protocol that all support, another
  type, or a group of the consumer protocol), UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, GROUP_MAX_SIZE_REACHED,
  INVALID_REQUEST (more protocols than broker.serving.limits allows).

Versions: 0 has no rebalance timeout, and the session timeout is used for it; 4 MEMBER_ID_REQUIRED; 5 static members; 6
flexible; 7 protocol type; 8 reason; 9 skip_assignment (KIP-814).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.groups.classic_messages import JoinAnswer, JoinRequest
from broker.serving import steps
from broker.serving.api import Api
from broker.serving.limits import check_count
from protocol.api_keys import ApiKey
from protocol.errors import KafkaError
from protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember

if TYPE_CHECKING:
    from broker.network.request import Request
    from broker.serving.context import Context


def handle(context: Context, request: Request, body: JoinGroupRequest) -> None:
    version = request.api_version

    def reply(answer: JoinAnswer) -> None:
        response = JoinGroupResponse(
            error_code=answer.error,
            generation_id=answer.generation_id,
            protocol_type=answer.protocol_type,
            protocol_name=answer.protocol if version >= 7 else answer.protocol or "",
            leader=answer.leader,
            skip_assignment=answer.skip_assignment,
            member_id=answer.member_id,
            members=[
                JoinGroupResponseMember(
                    member_id=each.member_id, group_instance_id=each.instance_id, metadata=each.metadata
                )
                for each in answer.members
            ],
        )
        steps.finish(context, request, response, len(response.members))

    try:
        check_count(ApiKey.JOIN_GROUP, len(body.protocols))
    except KafkaError as refused:
        reply(JoinAnswer(refused.code, body.member_id))
        return
    join = JoinRequest(
        member_id=body.member_id,
        instance_id=body.group_instance_id,
        client_id=request.client_id,
        client_host=f"/{request.connection.host}",
        session_timeout_ms=body.session_timeout_ms,
        rebalance_timeout_ms=max(body.rebalance_timeout_ms, 0) if version >= 1 else body.session_timeout_ms,
        protocol_type=body.protocol_type,
        protocols=tuple((each.name, each.metadata) for each in body.protocols),
        takes_id_first=version >= 4,
        may_skip_assignment=version >= 9,
    )
    context.groups.ask(
        body.group_id,
        reply,
        lambda error: JoinAnswer(error, body.member_id),
        lambda shard, ticket, now, now_ms: shard.join(ticket, body.group_id, join, now, now_ms),
    )


API = Api(ApiKey.JOIN_GROUP, 0, 9, JoinGroupRequest, handle)
