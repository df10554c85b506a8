"""ListGroups: the groups that this broker coordinates; clients ask all brokers.

Behaviour: while a partition of `__consumer_offsets` is being loaded here, COORDINATOR_LOAD_IN_PROGRESS and no groups. A
group that has only offsets is listed, too: type "classic", state "Empty", no protocol type. Filters ignore upper and
lower case, and an empty filter matches all groups.

Versions: 3 flexible; 4 states (KIP-518); 5 types (KIP-848).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.groups.shard import ListedGroup as Listed
from broker.groups.shard import Shard
from broker.serving.api import Api
from protocol.api_keys import ApiKey
from protocol.codec import encode
from protocol.errors import ErrorCode
from protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse

if TYPE_CHECKING:
    from broker.network.request import Request
    from broker.serving.context import Context


def handle(context: Context, request: Request, body: ListGroupsRequest) -> None:
    states = {state.lower() for state in body.states_filter}
    types = {kind.lower() for kind in body.types_filter}

    def list_shard(shard: Shard) -> list[Listed]:
        return [
            group
            for group in shard.list_groups()
            if (not states or group.state.lower() in states) and (not types or group.group_type in types)
        ]

    def answer(error: ErrorCode, groups: list[Listed]) -> None:
        response = ListGroupsResponse(
            error_code=error,
            groups=[
                ListedGroup(
                    group_id=group.group_id,
                    protocol_type=group.protocol_type,
                    group_state=group.state,
                    group_type=group.group_type,
                )
                for group in groups
            ],
        )
        request.reply_bytes(encode(response, request.api_version))

    context.groups.read_all(answer, list_shard)


API = Api(ApiKey.LIST_GROUPS, 0, 5, ListGroupsRequest, handle)
