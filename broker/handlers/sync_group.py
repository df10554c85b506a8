"""SyncGroup: the leader of a new generation sends all assignments, and each member gets its own.

Behaviour
- A member's request waits for the leader's. Then all are answered when the assignment is committed.
- Errors: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION, INCONSISTENT_GROUP_PROTOCOL (not the one of this
  generation), REBALANCE_IN_PROGRESS (join again). UNKNOWN_SERVER_ERROR: the group is too large for a record.
- REBALANCE_IN_PROGRESS, too, while the group is being loaded: Java's consumers do not expect
  COORDINATOR_LOAD_IN_PROGRESS here, and throw it at the application.

Versions: 3 static members; 4 flexible; 5 protocol type and name, which must be there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.groups.classic_messages import SyncAnswer, SyncRequest
from broker.serving import steps
from broker.serving.api import Api
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

if TYPE_CHECKING:
    from broker.network.request import Request
    from broker.serving.context import Context


def handle(context: Context, request: Request, body: SyncGroupRequest) -> None:
    def reply(answer: SyncAnswer) -> None:
        response = SyncGroupResponse(
            error_code=answer.error,
            protocol_type=answer.protocol_type,
            protocol_name=answer.protocol,
            assignment=answer.assignment,
        )
        steps.finish(context, request, response, 0)

    if request.api_version >= 5 and (body.protocol_type is None or body.protocol_name is None):
        reply(SyncAnswer(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
        return
    sync = SyncRequest(
        member_id=body.member_id,
        instance_id=body.group_instance_id,
        generation_id=body.generation_id,
        protocol_type=body.protocol_type,
        protocol=body.protocol_name,
        assignments={each.member_id: each.assignment for each in body.assignments},
    )
    context.groups.ask(
        body.group_id,
        reply,
        _refusal,
        lambda shard, ticket, now, now_ms: shard.classic(body.group_id).sync(ticket, sync, now, now_ms),
    )


def _refusal(error: ErrorCode) -> SyncAnswer:
    is_loading = error == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return SyncAnswer(ErrorCode.REBALANCE_IN_PROGRESS if is_loading else error)


API = Api(ApiKey.SYNC_GROUP, 0, 5, SyncGroupRequest, handle)
