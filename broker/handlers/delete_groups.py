"""DeleteGroups: delete groups without members, and all their committed offsets.

Behaviour, for each group by itself: NON_EMPTY_GROUP while it has members, GROUP_ID_NOT_FOUND if it does not exist.

Versions: 2 flexible.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from broker.coordinator.outcome import Decided
from broker.coordinator.ticket import Ticket
from broker.groups.records import GroupRecord
from broker.groups.shard import Shard
from broker.serving import steps
from broker.serving.api import Api
from broker.serving.steps import Steps
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse

if TYPE_CHECKING:
    from broker.network.request import Request
    from broker.serving.context import Context

#: Groups that are asked about before the first of them is answered: all of these answers may come at once.
_ASKED_AT_A_TIME = 500


def handle(context: Context, request: Request, body: DeleteGroupsRequest) -> Steps:
    # Each group once: one that is named again would not be found any more.
    return _Deletion(context, request, list(dict.fromkeys(body.groups_names))).begin()


class _Deletion:
    """The groups of one request."""

    def __init__(self, context: Context, request: Request, group_ids: list[str]) -> None:
        self._context = context
        self._request = request
        self._reading = context.groups.reading()
        #: Group -> its result. Those that were not asked about yet have none.
        self._errors: dict[str, ErrorCode] = {}
        self._left = deque(group_ids)
        #: Groups that were asked about and are not answered yet, and one while the request asks.
        self._missing = 0

    def begin(self) -> Steps:
        for group_id in self._left:
            self._reading.add(group_id)
            yield
        # A stale coordinator must not say that there is no such group.
        self._reading.confirm(self._go_on)

    def _go_on(self) -> None:
        following = self._ask() if self._left else self._reply()
        self._context.long_requests.resume(self._request, following)

    def _ask(self) -> Steps:
        self._missing = 1
        while self._left and self._missing <= _ASKED_AT_A_TIME:
            group_id = self._left.popleft()
            self._errors[group_id] = ErrorCode.NONE  # it keeps its place
            self._missing += 1
            try:
                self._reading.shard(group_id)
            except KafkaError as error:
                self._answered(group_id, error.code)
            else:
                answered = partial(self._answered, group_id)
                self._context.groups.ask(group_id, answered, _same, partial(_delete, group_id))
            yield
        self._one_done()

    def _answered(self, group_id: str, error: ErrorCode) -> None:
        self._errors[group_id] = error
        self._one_done()

    def _one_done(self) -> None:
        self._missing -= 1
        if not self._missing:
            self._go_on()

    def _reply(self) -> Steps:
        response = DeleteGroupsResponse(results=[])
        for group_id, error in self._errors.items():
            response.results.append(DeletableGroupResult(group_id=group_id, error_code=error))
            yield
        yield from steps.reply(self._request, response)


def _same(error: ErrorCode) -> ErrorCode:
    return error


def _delete(
    group_id: str, shard: Shard, ticket: Ticket[ErrorCode], now: float, now_ms: int
) -> Decided[GroupRecord]:
    return shard.delete_group(ticket, group_id)


API = Api(ApiKey.DELETE_GROUPS, 0, 2, DeleteGroupsRequest, handle)
