"""ListPartitionReassignments: the reassignments under way (KIP-455). The controller answers, so that the answer
contains the latest changes, whichever broker the client asks.

Behaviour: unknown partitions, and those that are not being reassigned, are left out. `replicas` are all replicas: those
that stay, are added and are removed. A reassignment is over when the committed configuration of the partition's group
consists of exactly the target replicas.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.serving import steps
from broker.serving.api import Api
from broker.serving.steps import Steps
from protocol.api_keys import ApiKey
from protocol.controller.replicas import ListReassignments, ListReassignmentsResult, OngoingReassignment
from protocol.errors import KafkaError
from protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)

if TYPE_CHECKING:
    from broker.network.request import Request
    from broker.serving.context import Context


def handle(context: Context, request: Request, body: ListPartitionReassignmentsRequest) -> Steps:
    wanted: set[tuple[str, int]] | None = None
    if body.topics is not None:
        wanted = set()
        for topic in body.topics:
            for partition in topic.partition_indexes:
                wanted.add((topic.name, partition))
                yield
            yield

    def answer(result: ListReassignmentsResult | KafkaError) -> None:
        context.long_requests.resume(request, _answer(request, wanted, result))

    context.controller.call(ListReassignments(), answer)


def _answer(
    request: Request, wanted: set[tuple[str, int]] | None, result: ListReassignmentsResult | KafkaError
) -> Steps:
    response = ListPartitionReassignmentsResponse(topics=[])
    if isinstance(result, KafkaError):
        response.error_code, response.error_message = result.code, result.message
    else:
        topics: dict[str, OngoingTopicReassignment] = {}
        for moving in result.partitions:
            if wanted is None or (moving.topic, moving.partition) in wanted:
                topic = topics.get(moving.topic)
                if topic is None:
                    topic = topics[moving.topic] = OngoingTopicReassignment(name=moving.topic, partitions=[])
                topic.partitions.append(_describe(moving))
            yield
        response.topics = list(topics.values())
    yield from steps.reply(request, response)


def _describe(moving: OngoingReassignment) -> OngoingPartitionReassignment:
    return OngoingPartitionReassignment(
        partition_index=moving.partition,
        replicas=moving.node_ids,
        adding_replicas=moving.adding,
        removing_replicas=moving.removing,
    )


API = Api(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, 0, ListPartitionReassignmentsRequest, handle)
