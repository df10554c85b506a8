"""CreatePartitions: more partitions for existing topics (KIP-195). Answered when they are committed and have leaders,
or when the client's timeout is over; the partitions are created then all the same.

Behaviour: each topic by itself; the checks and their codes are in broker.metadata.topic_checks. The number of
partitions never decreases. New ones get as many replicas as the topic's first partition has. Keys may map to other
partitions afterwards.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.serving.api import Api
from protocol.api_keys import ApiKey
from protocol.codec import encode
from protocol.controller.topics import (
    CreatePartitions,
    CreatePartitionsResult,
    NewPartitionNodes,
    NewPartitions,
)
from protocol.errors import KafkaError
from protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from storage.log_types import GroupKey

if TYPE_CHECKING:
    from broker.network.request import Request
    from broker.serving.context import Context


def handle(context: Context, request: Request, body: CreatePartitionsRequest) -> None:
    wanted = CreatePartitions(
        topics=[
            NewPartitions(name=topic.name, count=topic.count, assignments=_assignments(topic))
            for topic in body.topics
        ],
        validate_only=body.validate_only,
    )
    began = context.now()

    def added(result: CreatePartitionsResult | KafkaError) -> None:
        new = [
            GroupKey(topic.topic_id, topic.first_partition + number)
            for topic in ([] if isinstance(result, KafkaError) else result.topics)
            for number in range(topic.partition_count)
        ]
        context.leader_waits.wait_for_new_partitions(new, began, body.timeout_ms, lambda: answer(result))

    def answer(result: CreatePartitionsResult | KafkaError) -> None:
        if request.is_abandoned:
            return
        if isinstance(result, KafkaError):
            results = [
                CreatePartitionsTopicResult(name=name, error_code=result.code, error_message=result.message)
                for name in dict.fromkeys(topic.name for topic in body.topics)
            ]
        else:
            results = [
                CreatePartitionsTopicResult(
                    name=topic.name, error_code=topic.error_code, error_message=topic.error_message
                )
                for topic in result.topics
            ]
        request.reply_bytes(encode(CreatePartitionsResponse(results=results), request.api_version))

    context.controller.call(wanted, added)


def _assignments(topic: CreatePartitionsTopic) -> list[NewPartitionNodes] | None:
    if topic.assignments is None:
        return None
    return [NewPartitionNodes(node_ids=each.broker_ids) for each in topic.assignments]


API = Api(ApiKey.CREATE_PARTITIONS, 0, 3, CreatePartitionsRequest, handle)
