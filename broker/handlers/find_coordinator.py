"""FindCoordinator: which broker coordinates a group.

Behaviour: any broker answers. The coordinator is the leader of the group's partition of `__consumer_offsets`, and the
first request creates that topic. While it does not exist or the partition has no leader, the answer is
COORDINATOR_NOT_AVAILABLE with node -1, which clients retry. Transactional ids and share groups are refused
(INVALID_REQUEST), so that init_transactions() fails at once.

Versions: 0 groups only; 3 flexible; 4 several keys; in 5 the client understands TRANSACTION_ABORTABLE; 6 allows share
groups.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.serving import steps
from broker.serving.api import Api
from broker.serving.steps import Steps
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

if TYPE_CHECKING:
    from broker.network.request import Request
    from broker.serving.context import Context

GROUP = 0


def handle(context: Context, request: Request, body: FindCoordinatorRequest) -> Steps:
    response = FindCoordinatorResponse(coordinators=[])
    for key in body.coordinator_keys if request.api_version >= 4 else [body.key]:
        response.coordinators.append(_find(context, key, body.key_type, request.listener))
        yield
    if request.api_version < 4:
        (found,) = response.coordinators
        response.error_code, response.error_message = found.error_code, found.error_message
        response.node_id, response.host, response.port = found.node_id, found.host, found.port
    yield from steps.reply(request, response)


def _find(context: Context, key: str, key_type: int, listener: str) -> Coordinator:
    try:
        if key_type != GROUP:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "transactions and share groups are not supported yet")
        node_id, host, port = context.offsets_topic.find_coordinator(key, listener)
    except KafkaError as error:
        return Coordinator(
            key=key, node_id=-1, host="", port=-1, error_code=error.code, error_message=error.message or None
        )
    return Coordinator(key=key, node_id=node_id, host=host, port=port)


API = Api(ApiKey.FIND_COORDINATOR, 0, 6, FindCoordinatorRequest, handle, names_leaders=lambda *_: True)
