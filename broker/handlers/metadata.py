"""Metadata: who is there, which topics, who leads what.

Behaviour
- Topics come from the committed metadata image, leaders from what the nodes announce (latest term wins), so a new
  leader is visible without a write to the metadata log.
- A named topic that is missing is created if broker and request allow it; the first answers are
  UNKNOWN_TOPIC_OR_PARTITION, until its partitions have leaders; clients ask again (client-behaviour.md B.2).
- A topic that is named several times is answered once.
- Authorized operations, where they are asked for (KIP-430), are all there are: there is no authorizer.
- A partition without a live leader: LEADER_NOT_AVAILABLE and leader -1, epoch kept.
- ISR: on the leader's own node the replicas that keep up; elsewhere the leader and the replicas that are alive.
- Large answers are kept and given again while nothing that they tell of has changed.

Versions: 0 an empty list asks for all; 1+ null does. 4 auto-creation flag; 7 leader epoch; 9 flexible; 10 topic ids;
12 asks by id; 13 has room for an error of the whole answer, of which there is none (KIP-1102).
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from broker.metadata.ids import INTERNAL_TOPICS
from broker.metadata.records import TopicRecord
from broker.serving.api import Api
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


#: Bits of Kafka's AclOperation that apply to a topic: 3 read, 4 write, 5 create, 6 delete, 7 alter, 8 describe,
#: 10 describe configs, 11 alter configs; and to the cluster: 5, 7, 8, 9 cluster action, 10, 11, 12 idempotent write.
TOPIC_OPERATIONS = sum(1 << operation for operation in (3, 4, 5, 6, 7, 8, 10, 11))
CLUSTER_OPERATIONS = sum(1 << operation for operation in (5, 7, 8, 9, 10, 11, 12))


#: Answers of so many bytes take a millisecond or more to make, and many clients ask the same.
_WORTH_KEEPING_BYTES = 4096
_KEPT_BYTES = 16 << 20
#: How long an answer is kept where nothing tells that a replica keeps up no more, or does again.
_KEPT_S = 1.0


class KeptAnswers:
    """Large answers as they were encoded, while all that they tell of is as it was.

    Invariant: all of `_answers` were made under `_stamp`; their sizes sum up to `_size_bytes`.
    """

    def __init__(self) -> None:
        self._stamp: tuple[object, ...] = ()
        self._answers: dict[tuple[object, ...], bytes] = {}
        self._size_bytes = 0

    def get(self, question: tuple[object, ...], stamp: tuple[object, ...]) -> bytes | None:
        """`stamp`: what has to be equal for an answer to be the same again."""
        if stamp != self._stamp:
            self._stamp = stamp
            self._answers = {}
            self._size_bytes = 0
        return self._answers.get(question)

    def keep(self, question: tuple[object, ...], answer: bytes) -> None:
        """Made under the stamp of the last `get`."""
        if len(answer) >= _WORTH_KEEPING_BYTES and self._size_bytes + len(answer) <= _KEPT_BYTES:
            self._answers[question] = answer
            self._size_bytes += len(answer)


def handle(node: Node, request: Request, body: MetadataRequest) -> None:
    version = request.api_version
    wanted: tuple[tuple[str, UUID], ...] | None = None
    if body.topics is not None and (version > 0 or body.topics):
        # Each once, however often it is named: an answer is thousands of times as large as a name.
        wanted = tuple(dict.fromkeys((topic.name or "", topic.topic_id) for topic in body.topics))
    question = (
        request.listener,
        version,
        wanted,
        _may_create(node, body),
        body.include_topic_authorized_operations,
        body.include_cluster_authorized_operations,
    )
    answer = node.kept_metadata.get(question, _stamp(node))
    if answer is None:
        response = _respond(node, request, body, wanted)
        answer = encode(response, version)
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        missing = [found.name for found in response.topics if found.name and found.error_code == unknown]
        if not missing:
            node.kept_metadata.keep(question, answer)
        elif _may_create(node, body):
            node.auto_create([name for name in missing if node.metadata.image.topic_named(name) is None])
    request.reply_bytes(answer)


def _may_create(node: Node, body: MetadataRequest) -> bool:
    """Whether this question makes the topics that it names and that are missing."""
    return body.allow_auto_topic_creation and node.config.auto_create_topics_enable


def _stamp(node: Node) -> tuple[object, ...]:
    """Of all that answers tell of: topics and brokers, leaders and controller, who is alive, and now and then who
    keeps up."""
    period = int(node.now() / _KEPT_S)
    return node.metadata.image.end_offset, node.leaders.changes, node.view.alive_brokers(), period


def _respond(
    node: Node, request: Request, body: MetadataRequest, wanted: tuple[tuple[str, UUID], ...] | None
) -> MetadataResponse:
    """`wanted`: names or ids; None: all topics."""
    response = MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=broker_id, host=host, port=port)
            for broker_id, host, port in node.view.live_brokers(request.listener)
        ],
        cluster_id=node.cluster_id,
        controller_id=node.view.controller(),
        topics=[],
    )
    if wanted is None:
        response.topics = [_describe(node, topic) for topic in node.metadata.image.topics_by_name()]
    else:
        version, may_create = request.api_version, _may_create(node, body)
        response.topics = [_answer(node, version, may_create, name, topic_id) for name, topic_id in wanted]
    if body.include_topic_authorized_operations:
        for topic in response.topics:
            topic.topic_authorized_operations = TOPIC_OPERATIONS
    if body.include_cluster_authorized_operations:
        response.cluster_authorized_operations = CLUSTER_OPERATIONS
    return response


def _answer(node: Node, version: int, may_create: bool, name: str, topic_id: UUID) -> MetadataResponseTopic:
    """What a request named, by name or by id. `may_create`: it makes the topics that are missing."""
    image = node.metadata.image
    if topic_id == NIL_UUID:
        topic = image.topic_named(name)
        if topic is None:
            return _error(node.view.why_no_topic(name), name)
        described = _describe(node, topic)
        has_leaders = all(partition.leader_id >= 0 for partition in described.partitions)
        if may_create and node.new_topics.is_hidden(name, has_leaders, node.now()):
            return _error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name)
        return described
    if version < 12:
        return _error(ErrorCode.INVALID_REQUEST, name, topic_id)
    topic = image.topics.get(topic_id)
    return _describe(node, topic) if topic is not None else _error(ErrorCode.UNKNOWN_TOPIC_ID, None, topic_id)


def _error(code: ErrorCode, name: str | None, topic_id: UUID = NIL_UUID) -> MetadataResponseTopic:
    """A topic that is internal is so before it is there, as Kafka says it."""
    is_internal = name in INTERNAL_TOPICS
    return MetadataResponseTopic(
        error_code=code, name=name, topic_id=topic_id, is_internal=is_internal, partitions=[]
    )


def _describe(node: Node, topic: TopicRecord) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=describe_partitions(node, topic, range(len(topic.partitions))),
    )


def describe_partitions(node: Node, topic: TopicRecord, numbers: range) -> list[MetadataResponsePartition]:
    states = node.view.partition_states(topic, numbers)
    return [
        MetadataResponsePartition(
            error_code=ErrorCode.NONE if leader >= 0 else ErrorCode.LEADER_NOT_AVAILABLE,
            partition_index=number,
            leader_id=leader,
            leader_epoch=epoch,
            replica_nodes=list(topic.partitions[number].replicas),
            isr_nodes=in_sync,
            offline_replicas=offline,
        )
        for number, (leader, epoch, in_sync, offline) in zip(numbers, states, strict=True)
    ]


def _asks_for_leaders(request: Request, body: MetadataRequest) -> bool:
    """Not so who asks for the brokers alone, by a list without topics, as clients do when they start."""
    return request.api_version == 0 or body.topics != []


API = Api(ApiKey.METADATA, 0, 13, MetadataRequest, handle, waits_for_news=_asks_for_leaders)
