"""CreatePartitions: more partitions for existing topics (KIP-195). Answered when they are committed and have leaders,
or when the client's timeout is over; the partitions are created then all the same.

Behaviour: each topic by itself; the checks and their codes are in broker.metadata.topic_checks. The number of
partitions never decreases. New ones get as many replicas as the topic's first partition has. Keys may map to other
partitions afterwards.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.serving import steps
from broker.serving.api import Api
from broker.serving.steps import Steps
from protocol.api_keys import ApiKey
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
    CreatePartitionsTopicResult,
)
from storage.log_types import GroupKey

if TYPE_CHECKING:
    from broker.network.request import Request
    from broker.serving.context import Context


def handle(context: Context, request: Request, body: CreatePartitionsRequest) -> Steps:
    began = context.now()
    wanted = CreatePartitions(topics=[], validate_only=body.validate_only)
    for topic in body.topics:
        new = NewPartitions(name=topic.name, count=topic.count)
        if topic.assignments is not None:
            new.assignments = []
            for each in topic.assignments:
                new.assignments.append(NewPartitionNodes(node_ids=each.broker_ids))
                yield
        wanted.topics.append(new)
        yield

    def added(result: CreatePartitionsResult | KafkaError) -> None:
        context.long_requests.resume(request, _wait_for_leaders(context, request, body, began, result))

    context.controller.call(wanted, added)


def _wait_for_leaders(
    context: Context,
    request: Request,
    body: CreatePartitionsRequest,
    began: float,
    result: CreatePartitionsResult | KafkaError,
) -> Steps:
    new: list[GroupKey] = []
    for topic in () if isinstance(result, KafkaError) else result.topics:
        first = topic.first_partition
        new += [GroupKey(topic.topic_id, number) for number in range(first, first + topic.partition_count)]
        yield

    def answer() -> None:
        context.long_requests.resume(request, _answer(request, body, result))

    context.leader_waits.wait_for_new_partitions(new, began, body.timeout_ms, answer)


def _answer(
    request: Request, body: CreatePartitionsRequest, result: CreatePartitionsResult | KafkaError
) -> Steps:
    response = CreatePartitionsResponse(results=[])
    if isinstance(result, KafkaError):
        for name in dict.fromkeys(topic.name for topic in body.topics):
            response.results.append(
                CreatePartitionsTopicResult(name=name, error_code=result.code, error_message=result.message)
            )
            yield
    else:
        for topic in result.topics:
            response.results.append(
                CreatePartitionsTopicResult(
                    name=topic.name, error_code=topic.error_code, error_message=topic.error_message
                )
            )
            yield
    yield from steps.reply(request, response)


API = Api(ApiKey.CREATE_PARTITIONS, 0, 3, CreatePartitionsRequest, handle)
