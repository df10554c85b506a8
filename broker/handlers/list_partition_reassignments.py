"""ListPartitionReassignments: which partitions are on their way (KIP-455). The controller answers: what it recorded a
moment ago is in it, whichever broker is asked.

Behaviour: unknown topics and partitions, and those that do not move, are left out. `replicas` are all that stay, come
and go. A reassignment is over when the partition's leader has the wished replicas, and nobody else, as its committed
configuration.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.serving.api import Api
from protocol.api_keys import ApiKey
from protocol.codec import encode
from protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)

if TYPE_CHECKING:
    from broker.network.connection import Request
    from broker.serving.context import Context


def handle(context: Context, request: Request, body: ListPartitionReassignmentsRequest) -> None:
    wanted = None
    if body.topics is not None:
        wanted = {(topic.name, partition) for topic in body.topics for partition in topic.partition_indexes}

    def answer(result: dict[str, Any]) -> None:
        if request.is_abandoned:
            return
        topics: dict[str, list[OngoingPartitionReassignment]] = {}
        for topic, partition, replicas, adding, removing in result.get("partitions", ()):
            if wanted is None or (topic, partition) in wanted:
                topics.setdefault(topic, []).append(
                    OngoingPartitionReassignment(
                        partition_index=partition,
                        replicas=replicas,
                        adding_replicas=adding,
                        removing_replicas=removing,
                    )
                )
        response = ListPartitionReassignmentsResponse(
            error_code=result["error_code"],
            error_message=result.get("message"),
            topics=[OngoingTopicReassignment(name=name, partitions=x) for name, x in topics.items()],
        )
        request.reply_bytes(encode(response, request.api_version))

    context.controller.call("list_reassignments", {}, answer)


API = Api(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, 0, ListPartitionReassignmentsRequest, handle)
