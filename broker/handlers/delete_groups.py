"""DeleteGroups: delete groups without members, and all their committed offsets.

Behaviour, for each group by itself: NON_EMPTY_GROUP while it has members, GROUP_ID_NOT_FOUND if it does not exist.

Versions: 2 flexible.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from broker.coordinator.outcome import Outcome
from broker.coordinator.ticket import Ticket
from broker.groups.records import GroupRecord
from broker.groups.shard import Shard
from broker.serving.answer_in_parts import AnswerInParts
from broker.serving.api import Api
from protocol.api_keys import ApiKey
from protocol.codec import encode
from protocol.errors import ErrorCode
from protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse

if TYPE_CHECKING:
    from broker.network.request import Request
    from broker.serving.context import Context


def handle(context: Context, request: Request, body: DeleteGroupsRequest) -> None:
    # Each group once: one that is named again would not be found any more.
    group_ids = list(dict.fromkeys(body.groups_names))

    def answer(errors: list[ErrorCode]) -> None:
        results = [
            DeletableGroupResult(group_id=group_id, error_code=error)
            for group_id, error in zip(group_ids, errors, strict=True)
        ]
        request.reply_bytes(encode(DeleteGroupsResponse(results=results), request.api_version))

    def ask(position: int, reply: Callable[[ErrorCode], None]) -> None:
        group_id = group_ids[position]
        context.groups.ask_confirmed(group_id, reply, _failed, partial(_delete, group_id))

    AnswerInParts(context.loop, len(group_ids), ask, answer)


def _failed(error: ErrorCode) -> ErrorCode:
    return error


def _delete(
    group_id: str, shard: Shard, ticket: Ticket[ErrorCode], now: float, now_ms: int
) -> Outcome[GroupRecord]:
    return shard.delete_group(ticket, group_id)


API = Api(ApiKey.DELETE_GROUPS, 0, 2, DeleteGroupsRequest, handle)
