"""FindCoordinator: which broker coordinates a group or a transactional id.

Behaviour: any broker answers. The coordinator is the leader of the key's partition of `__consumer_offsets` or
`__transaction_state`, and the first request creates that topic. While it does not exist or the partition has no leader,
the answer is COORDINATOR_NOT_AVAILABLE with node -1, which clients retry. Share groups are refused (INVALID_REQUEST).

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

GROUP, TRANSACTION = 0, 1


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
        if key_type == GROUP:
            topic = context.offsets_topic
        elif key_type == TRANSACTION:
            topic = context.transactions.topic
        else:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "only groups and transactional ids have coordinators")
        node_id, host, port = topic.find_coordinator(key, listener)
    except KafkaError as error:
        return Coordinator(
            key=key, node_id=-1, host="", port=-1, error_code=error.code, error_message=error.message or None
        )
    return Coordinator(key=key, node_id=node_id, host=host, port=port)


API = Api(ApiKey.FIND_COORDINATOR, 0, 6, FindCoordinatorRequest, handle, names_leaders=lambda *_: True)
