"""DescribeQuorum: the voters of the metadata quorum and their log ends. The controller answers (KIP-595).

Behaviour: the only partition that can be described is `__cluster_metadata`-0; any other is
UNKNOWN_TOPIC_OR_PARTITION. A partition that is named twice in a topic is described once.

Versions: 1 fetch times of followers; 2 directory ids, messages, the nodes' addresses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.metadata.ids import METADATA_TOPIC_NAME
from broker.serving import steps
from broker.serving.api import Api
from broker.serving.steps import Steps
from protocol.api_keys import ApiKey
from protocol.controller.brokers import DescribeQuorum, DescribeQuorumResult, QuorumReplica
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    PartitionData,
    ReplicaState,
    TopicData,
)
from protocol.messages.describe_quorum import Node as QuorumNode

if TYPE_CHECKING:
    from broker.network.request import Request
    from broker.serving.context import Context


def handle(context: Context, request: Request, body: DescribeQuorumRequest) -> None:
    def answer(result: DescribeQuorumResult | KafkaError) -> None:
        context.long_requests.resume(request, _answer(context, request, body, result))

    context.controller.call(DescribeQuorum(), answer)


def _answer(
    context: Context,
    request: Request,
    body: DescribeQuorumRequest,
    result: DescribeQuorumResult | KafkaError,
) -> Steps:
    response = DescribeQuorumResponse()
    if isinstance(result, KafkaError):
        response.error_code, response.error_message = result.code, result.message
    else:
        for topic in body.topics:
            answered = TopicData(topic_name=topic.topic_name, partitions=[])
            response.topics.append(answered)
            for index in dict.fromkeys(partition.partition_index for partition in topic.partitions):
                answered.partitions.append(_partition(topic.topic_name, index, result))
                yield
            yield
        listener = context.config.controller_listener
        response.nodes = [
            QuorumNode(
                node_id=node.node_id, listeners=[Listener(name=listener, host=node.host, port=node.port)]
            )
            for node in result.nodes
        ]
    yield from steps.reply(request, response)


def _partition(topic: str, partition: int, quorum: DescribeQuorumResult) -> PartitionData:
    if (topic, partition) != (METADATA_TOPIC_NAME, 0):
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return PartitionData(
            partition_index=partition,
            error_code=unknown,
            error_message=f"only {METADATA_TOPIC_NAME}-0 is a quorum",
        )
    return PartitionData(
        partition_index=partition,
        leader_id=quorum.leader_id,
        leader_epoch=quorum.leader_epoch,
        high_watermark=quorum.high_watermark,
        current_voters=[_replica(state) for state in quorum.voters],
        observers=[_replica(state) for state in quorum.observers],
    )


def _replica(state: QuorumReplica) -> ReplicaState:
    return ReplicaState(
        replica_id=state.node_id,
        replica_directory_id=state.directory_id,
        log_end_offset=state.end_offset,
        last_fetch_timestamp_ms=state.last_contact_ms,
        last_caught_up_timestamp_ms=state.last_caught_up_ms,
    )


API = Api(ApiKey.DESCRIBE_QUORUM, 0, 2, DescribeQuorumRequest, handle)
