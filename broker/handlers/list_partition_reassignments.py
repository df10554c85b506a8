"""ListPartitionReassignments: the reassignments under way (KIP-455). The controller answers, so that the answer
contains the latest changes, whichever broker the client asks.

Behaviour: unknown partitions, and those that are not being reassigned, are left out. `replicas` are all replicas: those
that stay, are added and are removed. A reassignment is over when the committed configuration of the partition's group
consists of exactly the target replicas.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.serving.api import Api
from protocol.api_keys import ApiKey
from protocol.codec import encode
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


def handle(context: Context, request: Request, body: ListPartitionReassignmentsRequest) -> None:
    wanted = None
    if body.topics is not None:
        wanted = {(topic.name, partition) for topic in body.topics for partition in topic.partition_indexes}

    def answer(result: ListReassignmentsResult | KafkaError) -> None:
        if request.is_abandoned:
            return
        response = ListPartitionReassignmentsResponse(topics=[])
        if isinstance(result, KafkaError):
            response.error_code, response.error_message = result.code, result.message
        else:
            topics: dict[str, list[OngoingPartitionReassignment]] = {}
            for moving in result.partitions:
                if wanted is None or (moving.topic, moving.partition) in wanted:
                    topics.setdefault(moving.topic, []).append(_describe(moving))
            response.topics = [
                OngoingTopicReassignment(name=name, partitions=x) for name, x in topics.items()
            ]
        request.reply_bytes(encode(response, request.api_version))

    context.controller.call(ListReassignments(), answer)


def _describe(moving: OngoingReassignment) -> OngoingPartitionReassignment:
    return OngoingPartitionReassignment(
        partition_index=moving.partition,
        replicas=moving.node_ids,
        adding_replicas=moving.adding,
        removing_replicas=moving.removing,
    )


API = Api(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, 0, ListPartitionReassignmentsRequest, handle)
