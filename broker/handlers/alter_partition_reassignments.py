"""AlterPartitionReassignments: forwarded to the controller; answered when the target is committed (KIP-455).

Behaviour: the answer means that the target is recorded, not that the replicas have moved. Each partition's leader moves
them by changes of its Raft configuration, and ListPartitionReassignments shows the reassignments under way. Null
replicas cancel a reassignment: the previous replicas become the target. Codes: INVALID_REPLICA_ASSIGNMENT (39) for an
empty list, a broker that is named twice or not registered, or brokers without a live majority;
NO_REASSIGNMENT_IN_PROGRESS (85) if there is nothing to cancel; INVALID_REPLICATION_FACTOR (38) for another number of
replicas if the request forbids that (v1, KIP-860).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.serving import steps
from broker.serving.api import Api
from broker.serving.steps import Steps
from protocol.api_keys import ApiKey
from protocol.controller.replicas import ReassignedPartition, ReassignPartitions, ReassignPartitionsResult
from protocol.controller.request import ItemResult
from protocol.errors import KafkaError
from protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)

if TYPE_CHECKING:
    from broker.network.request import Request
    from broker.serving.context import Context


def handle(context: Context, request: Request, body: AlterPartitionReassignmentsRequest) -> Steps:
    wanted = ReassignPartitions(
        partitions=[], allow_replication_factor_change=body.allow_replication_factor_change
    )
    for topic in body.topics:
        for partition in topic.partitions:
            wanted.partitions.append(
                ReassignedPartition(
                    topic=topic.name, partition=partition.partition_index, node_ids=partition.replicas
                )
            )
            yield
        yield

    def answer(result: ReassignPartitionsResult | KafkaError) -> None:
        context.long_requests.resume(request, _answer(request, body, result))

    context.controller.call(wanted, answer)


def _answer(
    request: Request, body: AlterPartitionReassignmentsRequest, result: ReassignPartitionsResult | KafkaError
) -> Steps:
    response = AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=body.allow_replication_factor_change, responses=[]
    )
    if isinstance(result, KafkaError):
        response.error_code, response.error_message = result.code, result.message
    else:
        # The results have the order of the request.
        items = iter(result.partitions)
        for topic in body.topics:
            answered = ReassignableTopicResponse(name=topic.name, partitions=[])
            response.responses.append(answered)
            for partition in topic.partitions:
                answered.partitions.append(_response(partition.partition_index, next(items)))
                yield
            yield
    yield from steps.reply(request, response)


def _response(partition: int, item: ItemResult) -> ReassignablePartitionResponse:
    return ReassignablePartitionResponse(
        partition_index=partition, error_code=item.error_code, error_message=item.error_message
    )


API = Api(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, 1, AlterPartitionReassignmentsRequest, handle)
