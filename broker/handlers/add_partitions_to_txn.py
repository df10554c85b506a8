"""AddPartitionsToTxn: partitions that a producer is going to write to in its transaction. The first begins it.

Behaviour: all partitions are added, or none. If one does not exist, it is UNKNOWN_TOPIC_OR_PARTITION, and the others
are OPERATION_NOT_ATTEMPTED. While the markers of the transaction before are missing, the answer waits, for a second at
most, and is CONCURRENT_TRANSACTIONS then.

Versions: 2 PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH; 3 flexible. 4 and 5 are sent by Kafka's brokers to each
other; our nodes have messages of their own (protocol/controller/transactions.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from broker.metadata.ids import INTERNAL_TOPICS
from broker.serving import steps
from broker.serving.api import Api
from broker.serving.steps import Steps
from broker.transactions.metadata import ProducerIdAndEpoch, TopicPartition
from broker.transactions.requests import AddPartitions, TransactionAnswer, in_version
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)

if TYPE_CHECKING:
    from broker.network.request import Request
    from broker.serving.context import Context

#: Partitions that are looked at in one step.
_FEW = 50


def handle(context: Context, request: Request, body: AddPartitionsToTxnRequest) -> Steps:
    response = AddPartitionsToTxnResponse()
    partitions: list[TopicPartition] = []
    slots: list[AddPartitionsToTxnPartitionResult] = []
    for topic in body.v3_and_below_topics:
        answered = AddPartitionsToTxnTopicResult(name=topic.name, results_by_partition=[])
        response.results_by_topic_v3_and_below.append(answered)
        for partition, error in _checked(context, topic.name, topic.partitions):
            slot = AddPartitionsToTxnPartitionResult(partition_index=partition, partition_error_code=error)
            answered.results_by_partition.append(slot)
            slots.append(slot)
            partitions.append(TopicPartition(topic.name, partition))
            if len(slots) % _FEW == 0:
                yield
        yield

    def answer(result: TransactionAnswer) -> None:
        for slot in slots:
            slot.partition_error_code = in_version(result.error, request.api_version)
        steps.finish(context, request, response, len(slots) + len(body.v3_and_below_topics))

    if any(slot.partition_error_code for slot in slots):
        for slot in slots:
            if slot.partition_error_code == ErrorCode.NONE:
                slot.partition_error_code = ErrorCode.OPERATION_NOT_ATTEMPTED
        yield from steps.reply(request, response)
        return
    context.transactions.ask(
        AddPartitions(
            body.v3_and_below_transactional_id,
            ProducerIdAndEpoch(body.v3_and_below_producer_id, body.v3_and_below_producer_epoch),
            partitions,
            client_version=0,
            connection=context.connections.number_of(request.connection),
        ),
        answer,
    )


def _checked(context: Context, name: str, partitions: list[int]) -> Iterator[tuple[int, ErrorCode]]:
    """(partition, NONE or why it cannot be in a transaction)."""
    topic = context.image.topic_named(name)
    for partition in partitions:
        if name in INTERNAL_TOPICS:
            yield partition, ErrorCode.INVALID_TOPIC_EXCEPTION
        elif topic is None or not 0 <= partition < len(topic.partitions):
            yield partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        else:
            yield partition, ErrorCode.NONE


API = Api(ApiKey.ADD_PARTITIONS_TO_TXN, 0, 3, AddPartitionsToTxnRequest, handle)
