"""UnregisterBroker: remove the registration of a broker; forwarded to the controller (KIP-500).

Behaviour: BROKER_ID_NOT_REGISTERED (102) for an unknown broker; POLICY_VIOLATION (44) while it has a replica of a
partition, or one that is still being removed. (Apache Kafka has no such check.) A broker that is running registers
again only when it is restarted. It keeps its vote on metadata, which controller.quorum.voters defines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.serving.api import Api
from protocol.api_keys import ApiKey
from protocol.codec import encode
from protocol.controller.brokers import UnregisterBroker
from protocol.controller.request import EmptyResult
from protocol.errors import KafkaError
from protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse

if TYPE_CHECKING:
    from broker.network.request import Request
    from broker.serving.context import Context


def handle(context: Context, request: Request, body: UnregisterBrokerRequest) -> None:
    def answer(result: EmptyResult | KafkaError) -> None:
        if request.is_abandoned:
            return
        response = UnregisterBrokerResponse()
        if isinstance(result, KafkaError):
            response.error_code, response.error_message = result.code, result.message
        request.reply_bytes(encode(response, request.api_version))

    context.controller.call(UnregisterBroker(node_id=body.broker_id), answer)


API = Api(ApiKey.UNREGISTER_BROKER, 0, 0, UnregisterBrokerRequest, handle)
