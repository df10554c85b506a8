"""ShareGroupHeartbeat: refused with UNSUPPORTED_VERSION (35), because there are no share groups (KIP-932).

Behaviour: that of Apache Kafka 4.3 with `share.version` at level 0. Clients take it for the end: librdkafka 2.16 asks
without end where the API is not offered, and tells its application nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.serving.api import Api
from protocol.api_keys import ApiKey
from protocol.codec import encode
from protocol.errors import ErrorCode
from protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse

if TYPE_CHECKING:
    from broker.network.request import Request
    from broker.serving.context import Context


def handle(context: Context, request: Request, body: ShareGroupHeartbeatRequest) -> None:
    response = ShareGroupHeartbeatResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION, error_message="this cluster has no share groups"
    )
    request.reply_bytes(encode(response, request.api_version))


API = Api(ApiKey.SHARE_GROUP_HEARTBEAT, 1, 1, ShareGroupHeartbeatRequest, handle)
