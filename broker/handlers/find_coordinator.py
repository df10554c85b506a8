"""FindCoordinator: answered, but there is no coordinator yet.

Consumer groups come with a later issue: a group's coordinator is COORDINATOR_NOT_AVAILABLE, which clients retry and
show. Transactional ids are refused for good (INVALID_REQUEST), so that init_transactions() fails at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.handlers.api import Api
from protocol.api_keys import ApiKey
from protocol.codec import encode
from protocol.errors import ErrorCode
from protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

if TYPE_CHECKING:
    from broker.network.connection import Request
    from broker.node import Node

GROUP = 0


def handle(node: Node, request: Request, body: FindCoordinatorRequest) -> None:
    if body.key_type == GROUP:
        code, reason = ErrorCode.COORDINATOR_NOT_AVAILABLE, "consumer groups are not supported yet"
    else:
        code, reason = ErrorCode.INVALID_REQUEST, "transactions are not supported yet"
    response = FindCoordinatorResponse(error_code=code, error_message=reason)
    response.coordinators = [
        Coordinator(key=key, node_id=-1, host="", port=-1, error_code=code, error_message=reason)
        for key in body.coordinator_keys
    ]
    request.reply_bytes(encode(response, request.api_version))


API = Api(ApiKey.FIND_COORDINATOR, 0, 4, FindCoordinatorRequest, handle)
