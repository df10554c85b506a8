"""Heartbeat: keeps the session of a classic group's member alive, and tells the member whether it has to join again.

Behaviour
- REBALANCE_IN_PROGRESS while members are joining; NONE while the leader computes the assignment, and afterwards.
- NONE, too, while the group is being loaded, as in Apache Kafka: aiokafka's consumers end at the error that says so.
- Errors: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION.

Versions: 3 static members; 4 flexible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.groups.classic_messages import HeartbeatAnswer
from broker.serving.api import Api
from protocol.api_keys import ApiKey
from protocol.codec import encode
from protocol.errors import ErrorCode
from protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

if TYPE_CHECKING:
    from broker.network.request import Request
    from broker.serving.context import Context


def handle(context: Context, request: Request, body: HeartbeatRequest) -> None:
    def reply(answer: HeartbeatAnswer) -> None:
        request.reply_bytes(encode(HeartbeatResponse(error_code=answer.error), request.api_version))

    context.groups.ask(
        body.group_id,
        reply,
        _refusal,
        lambda shard, ticket, now, now_ms: shard.classic(body.group_id).heartbeat(
            ticket, body.member_id, body.group_instance_id, body.generation_id, now
        ),
    )


def _refusal(error: ErrorCode) -> HeartbeatAnswer:
    is_loading = error == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return HeartbeatAnswer(ErrorCode.NONE if is_loading else error)


API = Api(ApiKey.HEARTBEAT, 0, 4, HeartbeatRequest, handle)
