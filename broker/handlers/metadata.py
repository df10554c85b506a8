"""Metadata: who is there, which topics, who leads what.

Behaviour
- Topics come from the committed metadata image, leaders from what the nodes announce (latest term wins), so a new
  leader is visible without a write to the metadata log.
- A named topic that is missing is created if broker and request allow it; the first answers are
  UNKNOWN_TOPIC_OR_PARTITION, clients ask again (client-behaviour.md B.2).
- A partition without a live leader: LEADER_NOT_AVAILABLE and leader -1, epoch kept.
- ISR: on the leader's own node the replicas that keep up; elsewhere the leader and the replicas that are alive.

Versions: 0 an empty list asks for all; 1+ null does. 4 auto-creation flag; 7 leader epoch; 9 flexible; 10 topic ids;
12 asks by id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.handlers.api import Api
from broker.metadata.records import TopicRecord
from protocol.api_keys import ApiKey
from protocol.codec import encode
from protocol.errors import ErrorCode
from protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from protocol.schema import NIL_UUID

if TYPE_CHECKING:
    from broker.connection import Request
    from broker.node import Node


def handle(node: Node, request: Request, body: MetadataRequest) -> None:
    version = request.api_version
    response = MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=broker_id, host=host, port=port)
            for broker_id, host, port in node.view.live_brokers(request.listener)
        ],
        cluster_id=node.cluster_id,
        controller_id=node.controller_id(),
        topics=[],
    )
    image = node.metadata.image
    if body.topics is None or (version == 0 and not body.topics):
        response.topics = [_describe(node, topic) for topic in image.topics_by_name()]
    else:
        missing: list[str] = []
        for wanted in body.topics:
            if version >= 12 and wanted.topic_id != NIL_UUID:
                topic = image.topics.get(wanted.topic_id)
                if topic is None:
                    response.topics.append(_error(ErrorCode.UNKNOWN_TOPIC_ID, None, wanted.topic_id))
                    continue
            elif version in (10, 11) and wanted.topic_id != NIL_UUID:
                response.topics.append(_error(ErrorCode.INVALID_REQUEST, wanted.name or "", wanted.topic_id))
                continue
            else:
                topic = image.topic_named(wanted.name or "")
            if topic is not None:
                response.topics.append(_describe(node, topic))
                continue
            name = wanted.name or ""
            response.topics.append(_error(node.view.why_no_topic(name), name, NIL_UUID))
            missing.append(name)
        if missing and body.allow_auto_topic_creation and node.config.auto_create_topics_enable:
            node.auto_create(missing)
    request.reply_bytes(encode(response, version))


def _error(code: ErrorCode, name: str | None, topic_id: object) -> MetadataResponseTopic:
    answer = MetadataResponseTopic(error_code=code, name=name, partitions=[])
    answer.topic_id = topic_id  # type: ignore[assignment]
    return answer


def _describe(node: Node, topic: TopicRecord) -> MetadataResponseTopic:
    partitions: list[MetadataResponsePartition] = []
    for index, assignment in enumerate(topic.partitions):
        leader, epoch = node.view.leader_of_id(topic.topic_id, index)
        in_sync, offline = node.view.replica_state(topic.topic_id, index, leader, assignment.replicas)
        partitions.append(
            MetadataResponsePartition(
                error_code=ErrorCode.NONE if leader >= 0 else ErrorCode.LEADER_NOT_AVAILABLE,
                partition_index=index,
                leader_id=leader,
                leader_epoch=epoch,
                replica_nodes=list(assignment.replicas),
                isr_nodes=in_sync,
                offline_replicas=offline,
            )
        )
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name.startswith("__"),
        partitions=partitions,
    )


API = Api(ApiKey.METADATA, 0, 12, MetadataRequest, handle)
