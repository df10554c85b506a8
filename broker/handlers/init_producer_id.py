"""InitProducerId: a fresh producer id for an idempotent producer, epoch 0.

Behaviour: each broker allocates ids from its own block, which the controller has recorded in `__cluster_metadata`
before (replication.md section 8). Until the broker has a block, the answer is COORDINATOR_LOAD_IN_PROGRESS, which
clients retry. Transactional ids are refused (TRANSACTIONAL_ID_AUTHORIZATION_FAILED) until transactions are built.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.serving.api import Api
from protocol.api_keys import ApiKey
from protocol.codec import encode
from protocol.errors import ErrorCode
from protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from broker.network.request import Request
    from broker.serving.context import Context


def handle(context: Context, request: Request, body: InitProducerIdRequest) -> None:
    def answer(error: ErrorCode, producer_id: int) -> None:
        if not request.is_abandoned:
            epoch = 0 if error == ErrorCode.NONE else -1
            response = InitProducerIdResponse(error_code=error, producer_id=producer_id, producer_epoch=epoch)
            request.reply_bytes(encode(response, request.api_version))

    if body.transactional_id is not None:
        answer(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, -1)
    else:
        context.producer_ids.next_id(answer)


API = Api(ApiKey.INIT_PRODUCER_ID, 0, 4, InitProducerIdRequest, handle)
