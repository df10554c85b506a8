"""EndTxn: a producer commits or aborts its transaction.

Behaviour
- It is answered when the markers of all partitions are committed, or after a second; the end is durable then in any
  case.
- The same end again, as after a lost answer, is answered like the first one. Another end is INVALID_TXN_STATE.
- Up to version 4 the epoch stays the same from one transaction to the next. An EndTxn that is late could end the next
  transaction (KAFKA-17754). So one that comes by an older connection than the first request of the transaction is
  refused (CONCURRENT_TRANSACTIONS). A coordinator that took over in the middle of the transaction has not seen its
  first request, and cannot refuse what was sent to it when it coordinated the id before.

Versions: 2 PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH; 3 flexible; in 4 the client understands
TRANSACTION_ABORTABLE; from 5 on each end raises the epoch, and the answer names producer id and epoch of the next
transaction (KIP-890).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.serving.api import Api
from broker.transactions.metadata import EPOCH_BUMP_VERSION, ProducerIdAndEpoch
from broker.transactions.requests import EndTransaction, TransactionAnswer, in_version
from protocol.api_keys import ApiKey
from protocol.codec import encode
from protocol.messages.end_txn import EndTxnRequest, EndTxnResponse

if TYPE_CHECKING:
    from broker.network.request import Request
    from broker.serving.context import Context


def handle(context: Context, request: Request, body: EndTxnRequest) -> None:
    def answer(result: TransactionAnswer) -> None:
        if not request.is_abandoned:
            response = EndTxnResponse(
                error_code=in_version(result.error, request.api_version),
                producer_id=result.producer.producer_id,
                producer_epoch=result.producer.epoch,
            )
            request.reply_bytes(encode(response, request.api_version))

    context.transactions.ask(
        EndTransaction(
            body.transactional_id,
            ProducerIdAndEpoch(body.producer_id, body.producer_epoch),
            body.committed,
            EPOCH_BUMP_VERSION if request.api_version >= 5 else 0,
            connection=context.connections.number_of(request.connection),
        ),
        answer,
    )


API = Api(ApiKey.END_TXN, 0, 5, EndTxnRequest, handle)
