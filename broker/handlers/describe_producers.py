"""DescribeProducers: the producer state of a partition (KIP-664).

Behaviour: any replica answers, as in Kafka, from its own log, uncommitted batches included. A partition that is named
twice in a topic is described once.

Version: 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.metadata.topic_checks import check_name
from broker.serving.api import Api
from protocol.api_keys import ApiKey
from protocol.codec import encode
from protocol.errors import KafkaError
from protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)

if TYPE_CHECKING:
    from broker.network.request import Request
    from broker.serving.context import Context


def handle(context: Context, request: Request, body: DescribeProducersRequest) -> None:
    topics = [
        TopicResponse(
            name=topic.name,
            partitions=[
                _describe(context, topic.name, index) for index in dict.fromkeys(topic.partition_indexes)
            ],
        )
        for topic in body.topics
    ]
    request.reply_bytes(encode(DescribeProducersResponse(topics=topics), request.api_version))


def _describe(context: Context, topic: str, partition: int) -> PartitionResponse:
    answer = PartitionResponse(partition_index=partition)
    try:
        check_name(topic)
        replica = context.view.replica_named(topic, partition)
    except KafkaError as error:
        answer.error_code = error.code
        answer.error_message = error.message or None
        return answer
    answer.active_producers = [
        ProducerState(
            producer_id=producer_id,
            producer_epoch=entry.epoch,
            last_sequence=entry.last_sequence,
            last_timestamp=entry.last_timestamp_ms,
            coordinator_epoch=entry.coordinator_epoch,
            current_txn_start_offset=entry.transaction_first_offset,
        )
        for producer_id, entry in replica.producers.entries.items()
    ]
    return answer


API = Api(ApiKey.DESCRIBE_PRODUCERS, 0, 0, DescribeProducersRequest, handle)
