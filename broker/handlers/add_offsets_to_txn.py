"""AddOffsetsToTxn: a transaction is going to commit offsets of a group.

Behaviour: the group's partition of `__consumer_offsets` is added to the transaction, as AddPartitionsToTxn adds others.
The offsets themselves go to the group's coordinator (TxnOffsetCommit).

Versions: 2 PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH; 3 flexible; in 4 the client understands
TRANSACTION_ABORTABLE.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.metadata.ids import OFFSETS_TOPIC_NAME
from broker.serving.api import Api
from broker.transactions.metadata import ProducerIdAndEpoch, TopicPartition
from broker.transactions.requests import AddPartitions, TransactionAnswer, in_version, refusal
from protocol.api_keys import ApiKey
from protocol.codec import encode
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

if TYPE_CHECKING:
    from broker.network.request import Request
    from broker.serving.context import Context


def handle(context: Context, request: Request, body: AddOffsetsToTxnRequest) -> None:
    def answer(result: TransactionAnswer) -> None:
        if not request.is_abandoned:
            error = in_version(result.error, request.api_version)
            request.reply_bytes(encode(AddOffsetsToTxnResponse(error_code=error), request.api_version))

    try:
        partition = context.offsets_topic.partition_of(body.group_id)
    except KafkaError as error:
        answer(refusal(error.code))
        return
    if partition < 0:
        context.offsets_topic.create()
        answer(refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        return
    context.transactions.ask(
        AddPartitions(
            body.transactional_id,
            ProducerIdAndEpoch(body.producer_id, body.producer_epoch),
            [TopicPartition(OFFSETS_TOPIC_NAME, partition)],
            client_version=0,
            connection=context.connections.number_of(request.connection),
        ),
        answer,
    )


API = Api(ApiKey.ADD_OFFSETS_TO_TXN, 0, 4, AddOffsetsToTxnRequest, handle)
