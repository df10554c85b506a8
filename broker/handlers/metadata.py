"""Metadata: who is there, which topics, who leads what.

Behaviour
- Topics come from the committed metadata image, leaders from what the nodes announce (latest term wins), so a new
  leader is visible without a write to the metadata log.
- A named topic that is missing is created if broker and request allow it; the first answers are
  UNKNOWN_TOPIC_OR_PARTITION, clients ask again (client-behaviour.md B.2).
- A topic that is named several times is answered once.
- A partition without a live leader: LEADER_NOT_AVAILABLE and leader -1, epoch kept.
- ISR: on the leader's own node the replicas that keep up; elsewhere the leader and the replicas that are alive.

Versions: 0 an empty list asks for all; 1+ null does. 4 auto-creation flag; 7 leader epoch; 9 flexible; 10 topic ids;
12 asks by id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from broker.handlers.api import Api
from broker.metadata.ids import INTERNAL_TOPICS
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
    from broker.network.connection import Request
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
    if body.topics is None or (version == 0 and not body.topics):
        response.topics = [_describe(node, topic) for topic in node.metadata.image.topics_by_name()]
    else:
        # Each once, however often it is named: an answer is thousands of times as large as a name.
        wanted = dict.fromkeys((topic.name or "", topic.topic_id) for topic in body.topics)
        response.topics = [_answer(node, version, name, topic_id) for name, topic_id in wanted]
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        missing = [topic.name for topic in response.topics if topic.name and topic.error_code == unknown]
        if missing and body.allow_auto_topic_creation and node.config.auto_create_topics_enable:
            node.auto_create(missing)
    request.reply_bytes(encode(response, version))


def _answer(node: Node, version: int, name: str, topic_id: UUID) -> MetadataResponseTopic:
    """What a request named, by name or by id."""
    image = node.metadata.image
    if topic_id == NIL_UUID:
        topic = image.topic_named(name)
        return _describe(node, topic) if topic is not None else _error(node.view.why_no_topic(name), name)
    if version < 12:
        return _error(ErrorCode.INVALID_REQUEST, name, topic_id)
    topic = image.topics.get(topic_id)
    return _describe(node, topic) if topic is not None else _error(ErrorCode.UNKNOWN_TOPIC_ID, None, topic_id)


def _error(code: ErrorCode, name: str | None, topic_id: UUID = NIL_UUID) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=code, name=name, topic_id=topic_id, partitions=[])


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
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=partitions,
    )


API = Api(ApiKey.METADATA, 0, 12, MetadataRequest, handle)
