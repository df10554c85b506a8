"""AlterPartitionReassignments: forwarded to the controller; answered when the wish is committed (KIP-455).

Behaviour: the answer says that the wish is recorded, not that the replicas have moved: each partition's leader moves
them, by changes of its Raft configuration, and ListPartitionReassignments tells what is under way. Null replicas go
back to those before. Codes: INVALID_REPLICA_ASSIGNMENT (39) for nobody, a broker twice or one that is not registered,
and where no majority of the brokers named is alive; NO_REASSIGNMENT_IN_PROGRESS (85) for a cancellation of nothing;
INVALID_REPLICATION_FACTOR (38) for another number of replicas if the request forbids that (v1, KIP-860).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.serving.api import Api
from protocol.api_keys import ApiKey
from protocol.codec import encode
from protocol.errors import ErrorCode
from protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)

if TYPE_CHECKING:
    from broker.network.connection import Request
    from broker.serving.context import Context


def handle(context: Context, request: Request, body: AlterPartitionReassignmentsRequest) -> None:
    arguments = {
        "may_change_count": body.allow_replication_factor_change,
        "partitions": [
            (topic.name, partition.partition_index, partition.replicas)
            for topic in body.topics
            for partition in topic.partitions
        ],
    }

    def answer(result: dict[str, Any]) -> None:
        if request.is_abandoned:
            return
        response = AlterPartitionReassignmentsResponse(
            allow_replication_factor_change=body.allow_replication_factor_change,
            error_code=result["error_code"],
            error_message=result.get("message"),
            responses=[],
        )
        if result["error_code"] == ErrorCode.NONE:
            results = iter(result["partitions"])
            response.responses = [
                ReassignableTopicResponse(
                    name=topic.name, partitions=[_result(*next(results)) for _ in topic.partitions]
                )
                for topic in body.topics
            ]
        request.reply_bytes(encode(response, request.api_version))

    context.controller.call("reassign_partitions", arguments, answer)


def _result(_: str, partition: int, code: int, message: str | None) -> ReassignablePartitionResponse:
    return ReassignablePartitionResponse(partition_index=partition, error_code=code, error_message=message)


API = Api(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, 1, AlterPartitionReassignmentsRequest, handle)
