"""DescribeProducers: the producer state of a partition (KIP-664).

Behaviour: any replica answers, as in Kafka, from its own log, uncommitted batches included. A partition that is named
twice in a topic is described once.

Version: 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.metadata.topic_checks import check_name
from broker.serving import steps
from broker.serving.api import Api
from broker.serving.steps import Steps
from protocol.api_keys import ApiKey
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


def handle(context: Context, request: Request, body: DescribeProducersRequest) -> Steps:
    response = DescribeProducersResponse(topics=[])
    for topic in body.topics:
        described = TopicResponse(name=topic.name, partitions=[])
        response.topics.append(described)
        for index in dict.fromkeys(topic.partition_indexes):
            answer = PartitionResponse(partition_index=index)
            described.partitions.append(answer)
            yield from _describe(context, topic.name, answer)
    yield from steps.reply(request, response)


def _describe(context: Context, topic: str, answer: PartitionResponse) -> Steps:
    yield
    try:
        check_name(topic)
        replica = context.view.replica_named(topic, answer.partition_index)
    except KafkaError as error:
        answer.error_code = error.code
        answer.error_message = error.message or None
        return
    # A copy: producers come and go between two steps.
    for producer_id, entry in list(replica.producers.entries.items()):
        state = ProducerState(
            producer_id=producer_id,
            producer_epoch=entry.epoch,
            last_sequence=entry.last_sequence,
            last_timestamp=entry.last_timestamp_ms,
            coordinator_epoch=entry.coordinator_epoch,
            current_txn_start_offset=entry.transaction_first_offset,
        )
        answer.active_producers.append(state)
        yield


API = Api(ApiKey.DESCRIBE_PRODUCERS, 0, 0, DescribeProducersRequest, handle)
