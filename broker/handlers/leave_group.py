"""LeaveGroup: members leave their group, which rebalances without waiting for their sessions to end.

Behaviour
- A member is named by its id, or by its instance id alone, as administrators do (static members do not leave when they
  stop). Each has an error of its own: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID. They leave together, in one rebalance.
- A request that a leaving member waits for is answered UNKNOWN_MEMBER_ID.
- In a group that does not exist every member is unknown.

Versions: up to 2 one member, whose error is the answer's; 3 a batch; 4 flexible; 5 reason.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.groups.classic_messages import LeaveAnswer, Leaver
from broker.serving import steps
from broker.serving.api import Api
from broker.serving.steps import Steps
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse

if TYPE_CHECKING:
    from broker.network.request import Request
    from broker.serving.context import Context


def handle(context: Context, request: Request, body: LeaveGroupRequest) -> Steps:
    is_batch = request.api_version >= 3
    leaving = [] if is_batch else [Leaver(body.member_id, None)]
    for each in body.members if is_batch else ():
        leaving.append(Leaver(each.member_id, each.group_instance_id))
        yield
    leavers = tuple(leaving)

    def answer(left: LeaveAnswer) -> Steps:
        response = LeaveGroupResponse(error_code=left.error)
        for leaver, error in left.members if is_batch else ():
            member = MemberResponse(
                member_id=leaver.member_id, group_instance_id=leaver.instance_id, error_code=error
            )
            response.members.append(member)
            yield
        if not is_batch and left.error == ErrorCode.NONE:
            response.error_code = left.members[0][1]
        yield from steps.reply(request, response)

    def reply(left: LeaveAnswer) -> None:
        context.long_requests.resume(request, answer(left))

    def failure(error: ErrorCode) -> LeaveAnswer:
        if error == ErrorCode.UNKNOWN_MEMBER_ID:
            return LeaveAnswer(ErrorCode.NONE, tuple((leaver, error) for leaver in leavers))
        return LeaveAnswer(error)

    context.groups.ask(
        body.group_id,
        reply,
        failure,
        lambda shard, ticket, now, now_ms: shard.classic(body.group_id).leave(ticket, leavers, now, now_ms),
    )


API = Api(ApiKey.LEAVE_GROUP, 0, 5, LeaveGroupRequest, handle)
