"""SaslHandshake: refused with ILLEGAL_SASL_STATE (34) and no mechanism, because every listener is plain text.

Behaviour: that of Apache Kafka 4.3 on a listener without SASL. Without an answer the Java client takes the closed
connection for a broker that is away, and dials again until its timeout.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.serving.api import Api
from protocol.api_keys import ApiKey
from protocol.codec import encode
from protocol.errors import ErrorCode
from protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

if TYPE_CHECKING:
    from broker.network.request import Request
    from broker.serving.context import Context


def handle(context: Context, request: Request, body: SaslHandshakeRequest) -> None:
    response = SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[])
    request.reply_bytes(encode(response, request.api_version))


API = Api(ApiKey.SASL_HANDSHAKE, 0, 1, SaslHandshakeRequest, handle)
