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
from broker.scheduling.background import PAUSE
from broker.serving import steps
from broker.serving.api import Api
from broker.serving.steps import Steps
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse

if TYPE_CHECKING:
    from broker.coordinator.led_partition import LedPartition
    from broker.network.request import Request
    from broker.serving.context import Context


def handle(context: Context, request: Request, body: ListGroupsRequest) -> Steps | None:
    states = {state.lower() for state in body.states_filter}
    types = {kind.lower() for kind in body.types_filter}
    reading = context.groups.reading()
    try:
        reading.add_all()
    except KafkaError as loading:
        return steps.reply(request, ListGroupsResponse(error_code=loading.code, groups=[]))
    found: dict[LedPartition[Shard], list[ListedGroup]] = {}

    def look() -> Steps:
        for led in reading.partitions():
            groups = found[led] = []
            for group_id in led.shard.group_ids():
                while led.is_current and led.is_busy(group_id):
                    yield PAUSE
                group = led.shard.listed(group_id)
                if group is not None and _matches(group, states, types):
                    groups.append(_listed(group))
                yield
        reading.wait(lambda: context.long_requests.resume(request, reply()))

    def reply() -> Steps:
        response = ListGroupsResponse(groups=[])
        for led, groups in found.items():
            if reading.error_of(led) == ErrorCode.NONE:
                response.groups += groups
            yield
        yield from steps.reply(request, response)

    reading.confirm(lambda: context.long_requests.resume(request, look()))
    return None


def _matches(group: Listed, states: set[str], types: set[str]) -> bool:
    return (not states or group.state.lower() in states) and (not types or group.group_type in types)


def _listed(group: Listed) -> ListedGroup:
    return ListedGroup(
        group_id=group.group_id,
        protocol_type=group.protocol_type,
        group_state=group.state,
        group_type=group.group_type,
    )


API = Api(ApiKey.LIST_GROUPS, 0, 5, ListGroupsRequest, handle)
