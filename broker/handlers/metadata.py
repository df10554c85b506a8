"""Metadata: brokers, topics, and the leaders of partitions.

Behaviour
- Topics come from the committed metadata image, leaders from the nodes' announcements (the latest term wins). So a
  new leader is visible without a write to the metadata log.
- A named topic that does not exist is created if broker and request allow it. Until its partitions have leaders the
  answer is UNKNOWN_TOPIC_OR_PARTITION, and clients ask again (client-behaviour.md B.2).
- A topic that is named several times is answered once.
- Authorized operations, if requested (KIP-430), are all that apply, because there is no authorizer.
- A partition without a live leader: LEADER_NOT_AVAILABLE and leader -1, epoch kept.
- ISR: on the leader's own node the replicas that put up; elsewhere the leader and the replicas that are alive.
- Large answers are cached until something that they contain changes.

Versions: 0 an empty list asks for all; 1+ null does. 4 auto-creation flag; 7 leader epoch; 9 flexible; 10 topic ids;
12 asks by id; 13 has an error code for the whole answer, which is always NONE (KIP-1102).
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING
from uuid import UUID

import structlog

from broker.metadata.ids import INTERNAL_TOPICS, OFFSETS_TOPIC_NAME
from broker.metadata.records import TopicRecord
from broker.serving.answer_cache import MIN_CACHED_BYTES
from broker.serving.api import Api
from broker.serving.steps import Steps
from protocol.api_keys import ApiKey
from protocol.codec import encode, encode_in_steps
from protocol.controller.topics import CreateMissingTopics, CreateTopicsResult
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from protocol.schema import NIL_UUID

if TYPE_CHECKING:
    from broker.network.request import Request
    from broker.serving.context import Context


logger = structlog.get_logger()

#: Bits of Kafka's AclOperation that apply to a topic: 3 read, 4 write, 5 create, 6 delete, 7 alter, 8 describe,
#: 10 describe configs, 11 alter configs; and to the cluster: 5, 7, 8, 9 cluster action, 10, 11, 12 idempotent write.
TOPIC_OPERATIONS = sum(1 << operation for operation in (3, 4, 5, 6, 7, 8, 10, 11))
CLUSTER_OPERATIONS = sum(1 << operation for operation in (5, 7, 8, 9, 10, 11, 12))


#: How long an answer is cached at most. Nothing tells this handler that a replica has stopped or resumed keeping up.
_MAX_AGE_S = 1.0
#: A request that names more topics than this is answered anew each time.
_MAX_CACHED_TOPICS = 100
#: Some hundred microseconds.
_PARTITIONS_PER_STEP = 50

Question = tuple[object, ...]


def handle(context: Context, request: Request, body: MetadataRequest) -> Steps | None:
    question, stamp = _question(context, request, body), _stamp(context)
    if question is not None:
        answer = context.metadata_answers.get(question, stamp)
        if answer is not None:
            request.reply_bytes(answer)
            return None
    return _answer(context, request, body, question, stamp)


def _question(context: Context, request: Request, body: MetadataRequest) -> Question | None:
    """All that the answer depends on beside `_stamp`. None: the answer is not cached, because the request names many
    topics and hardly any other names the same."""
    wanted = None
    if not _wants_all(request, body):
        if len(body.topics or ()) > _MAX_CACHED_TOPICS:
            return None
        wanted = tuple((topic.name, topic.topic_id.int) for topic in body.topics or ())
    return (
        request.listener,
        request.api_version,
        wanted,
        _may_create(context, body),
        body.include_topic_authorized_operations,
        body.include_cluster_authorized_operations,
    )


def _wants_all(request: Request, body: MetadataRequest) -> bool:
    return body.topics is None or (request.api_version == 0 and not body.topics)


def _answer(
    context: Context,
    request: Request,
    body: MetadataRequest,
    question: Question | None,
    stamp: tuple[object, ...],
) -> Steps:
    """`stamp`: as it is now."""
    response = MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=broker_id, host=host, port=port)
            for broker_id, host, port in context.view.live_brokers(request.listener)
        ],
        cluster_id=context.view.cluster_id,
        controller_id=context.view.controller(),
        topics=[],
    )
    if body.include_cluster_authorized_operations:
        response.cluster_authorized_operations = CLUSTER_OPERATIONS
    if _wants_all(request, body):
        made_meanwhile = yield from _add_all_topics(context, response, question)
        if made_meanwhile is not None:
            request.reply_bytes(made_meanwhile)
            return
    else:
        yield from _add_named_topics(context, request, body, response)
    if body.include_topic_authorized_operations:
        for topic in response.topics:
            topic.topic_authorized_operations = TOPIC_OPERATIONS
    if sum(1 + len(topic.partitions) for topic in response.topics) <= _PARTITIONS_PER_STEP:
        answer = encode(response, request.api_version)
    else:
        answer = b"".join((yield from encode_in_steps(response, request.api_version)))
    is_missing_some = _create_missing(context, body, response)
    if (
        question is not None
        and len(answer) >= MIN_CACHED_BYTES
        and not is_missing_some
        and stamp == _stamp(context)
    ):
        context.metadata_answers.put(question, answer, stamp)
    request.reply_bytes(answer)


def _add_all_topics(
    context: Context, response: MetadataResponse, question: Question | None
) -> Generator[None, None, bytes | None]:
    """Many clients ask for all topics when a leader has changed. Returns the answer if another request has made it
    meanwhile."""
    assert question is not None, "it names no topic"
    for name in context.image.topic_names():
        topic = context.image.topic_named(name)
        if topic is not None:
            response.topics.append((yield from _describe(context, topic)))
            yield
            answer = context.metadata_answers.get(question, _stamp(context))
            if answer is not None:
                return answer
    return None


def _add_named_topics(
    context: Context, request: Request, body: MetadataRequest, response: MetadataResponse
) -> Steps:
    """Each topic is answered once, however often it is named: an answer is thousands of times as large as a name."""
    may_create, done = _may_create(context, body), set[tuple[str | None, int]]()
    for wanted in body.topics or ():
        key = wanted.name, wanted.topic_id.int
        if key not in done:
            done.add(key)
            found = yield from _describe_named(
                context, request.api_version, may_create, wanted.name or "", wanted.topic_id
            )
            response.topics.append(found)
        yield


def _create_missing(context: Context, body: MetadataRequest, response: MetadataResponse) -> bool:
    """Have the topics created that the request names and that do not exist, if it may do that. Returns whether there
    are any."""
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    missing = [topic.name for topic in response.topics if topic.name and topic.error_code == unknown]
    if missing and _may_create(context, body):
        _create(context, [name for name in missing if context.image.topic_named(name) is None])
    return bool(missing)


def _may_create(context: Context, body: MetadataRequest) -> bool:
    """Whether this request creates the topics that it names and that do not exist."""
    return body.allow_auto_topic_creation and context.config.auto_create_topics_enable


def _create(context: Context, names: list[str]) -> None:
    """Have these topics created. The client asks again until they exist."""
    if OFFSETS_TOPIC_NAME in names:
        context.offsets_topic.create()
    names = [name for name in names if name not in INTERNAL_TOPICS]
    if names:
        context.controller.call(CreateMissingTopics(names=names), _log_refused_topics)


def _log_refused_topics(result: CreateTopicsResult | KafkaError) -> None:
    """Log why topics were not created. The client has its answer already, which does not contain the reason."""
    if isinstance(result, KafkaError):
        logger.warning("topics are not created", reason=str(result), cause=result.code)
        return
    for topic in result.topics:
        if topic.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            logger.warning(
                "topic is not created", topic=topic.name, reason=topic.error_message, cause=topic.name
            )


def _stamp(context: Context) -> tuple[object, ...]:
    """The versions of everything that answers contain: topics and brokers, leaders and controller, live brokers. The
    period limits the age of the in-sync replicas."""
    period = int(context.now() / _MAX_AGE_S)
    return context.image.end_offset, context.view.leader_changes, context.view.alive_brokers(), period


def _describe_named(
    context: Context, version: int, may_create: bool, name: str, topic_id: UUID
) -> Generator[None, None, MetadataResponseTopic]:
    """The answer about a topic that the request names, by name or by id. `may_create`: the request creates missing
    topics."""
    image = context.image
    if topic_id == NIL_UUID:
        topic = image.topic_named(name)
        if topic is None:
            return _error(context.view.why_no_topic(name), name)
        described = yield from _describe(context, topic)
        has_leaders = all(partition.leader_id >= 0 for partition in described.partitions)
        if may_create and context.new_topics.is_hidden(name, has_leaders, context.now()):
            return _error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name)
        return described
    if version < 12:
        return _error(ErrorCode.INVALID_REQUEST, name, topic_id)
    topic = image.topics.get(topic_id)
    if topic is None:
        return _error(ErrorCode.UNKNOWN_TOPIC_ID, None, topic_id)
    return (yield from _describe(context, topic))


def _error(code: ErrorCode, name: str | None, topic_id: UUID = NIL_UUID) -> MetadataResponseTopic:
    """The answer about a topic with an error. An internal topic is marked so before it exists, as in Kafka."""
    is_internal = name in INTERNAL_TOPICS
    return MetadataResponseTopic(
        error_code=code, name=name, topic_id=topic_id, is_internal=is_internal, partitions=[]
    )


def _describe(context: Context, topic: TopicRecord) -> Generator[None, None, MetadataResponseTopic]:
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=(yield from describe_partitions(context, topic, range(len(topic.partitions)))),
    )


def describe_partitions(
    context: Context, topic: TopicRecord, numbers: range
) -> Generator[None, None, list[MetadataResponsePartition]]:
    """Numbers beyond the topic's last partition are left out."""
    partitions: list[MetadataResponsePartition] = []
    end = min(numbers.stop, len(topic.partitions))
    for first in range(numbers.start, end, _PARTITIONS_PER_STEP):
        some = range(first, min(first + _PARTITIONS_PER_STEP, end))
        states = context.view.partition_states(topic, some)
        partitions += [
            MetadataResponsePartition(
                error_code=ErrorCode.NONE if leader >= 0 else ErrorCode.LEADER_NOT_AVAILABLE,
                partition_index=number,
                leader_id=leader,
                leader_epoch=epoch,
                replica_nodes=list(topic.partitions[number].replicas),
                isr_nodes=in_sync,
                offline_replicas=offline,
            )
            for number, (leader, epoch, in_sync, offline) in zip(some, states, strict=True)
        ]
        if len(partitions) >= _PARTITIONS_PER_STEP:
            yield
    return partitions


def _asks_for_leaders(request: Request, body: MetadataRequest) -> bool:
    """False for a request with an empty list of topics, which asks only for brokers. Clients send it when they
    start."""
    return request.api_version == 0 or body.topics != []


API = Api(ApiKey.METADATA, 0, 13, MetadataRequest, handle, names_leaders=_asks_for_leaders)
