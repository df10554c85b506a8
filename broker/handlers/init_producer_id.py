"""InitProducerId: a producer id and epoch, for an idempotent producer or for the owner of a transactional id.

Behaviour
- Without a transactional id: a fresh producer id, epoch 0. Each broker allocates ids from its own block, which the
  controller has recorded in `__cluster_metadata` before (replication.md section 8). Until the broker has a block, the
  answer is COORDINATOR_LOAD_IN_PROGRESS, which clients retry.
- With one: its producer id and the next epoch, which fences the producers before. A transaction that is open is aborted
  first; the answer waits for that, for a second at most, and is CONCURRENT_TRANSACTIONS then.
- transaction.timeout.ms not above 0, or above transaction.max.timeout.ms: INVALID_TRANSACTION_TIMEOUT.

Versions: 2 flexible; 3 a producer may name the id and epoch that it has, to go on after an error (KIP-360); 4
PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH; in 5 the client understands TRANSACTION_ABORTABLE.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.serving.api import Api
from broker.transactions.metadata import NO_EPOCH, NO_PRODUCER_ID, ProducerIdAndEpoch
from broker.transactions.requests import TransactionAnswer
from protocol.api_keys import ApiKey
from protocol.codec import encode
from protocol.errors import ErrorCode
from protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from broker.network.request import Request
    from broker.serving.context import Context


def handle(context: Context, request: Request, body: InitProducerIdRequest) -> None:
    def answer(error: ErrorCode, producer: ProducerIdAndEpoch) -> None:
        if not request.is_abandoned:
            if error == ErrorCode.PRODUCER_FENCED and request.api_version < 4:
                error = ErrorCode.INVALID_PRODUCER_EPOCH
            response = InitProducerIdResponse(
                error_code=error, producer_id=producer.producer_id, producer_epoch=producer.epoch
            )
            request.reply_bytes(encode(response, request.api_version))

    if body.transactional_id is None:
        context.producer_ids.next_id(
            lambda error, producer_id: answer(
                error, ProducerIdAndEpoch(producer_id, 0 if error == ErrorCode.NONE else NO_EPOCH)
            )
        )
        return

    def answer_owner(result: TransactionAnswer) -> None:
        answer(result.error, result.producer)

    expected = None
    if body.producer_id != NO_PRODUCER_ID or body.producer_epoch != NO_EPOCH:
        expected = ProducerIdAndEpoch(body.producer_id, body.producer_epoch)
        if (body.producer_id == NO_PRODUCER_ID) != (body.producer_epoch == NO_EPOCH):
            answer(ErrorCode.INVALID_REQUEST, ProducerIdAndEpoch(NO_PRODUCER_ID, NO_EPOCH))
            return
    context.transactions.init_producer(
        body.transactional_id, expected, body.transaction_timeout_ms, answer_owner
    )


API = Api(ApiKey.INIT_PRODUCER_ID, 0, 5, InitProducerIdRequest, handle)
