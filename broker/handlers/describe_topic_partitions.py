"""DescribeTopicPartitions: the topics of Metadata, page by page (KIP-966).

Behaviour
- Topics come in the order of their names, each once. Without names all topics are shown. An unknown topic has an error.
- A page has at most `response_partition_limit` partitions (at least one, at most MAX_PARTITIONS). Its cursor names the
  partition where the next page begins.
- A cursor with a topic that the request does not name, or with a negative partition: INVALID_REQUEST for each topic.
- Eligible leader replicas are always empty: Raft elects any replica that holds all acknowledged records.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from broker.handlers.metadata import TOPIC_OPERATIONS, describe_partitions
from broker.metadata.ids import INTERNAL_TOPICS
from broker.metadata.records import TopicRecord
from broker.serving import steps
from broker.serving.api import Api
from broker.serving.steps import Steps
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from protocol.schema import NIL_UUID

if TYPE_CHECKING:
    from broker.network.request import Request
    from broker.serving.context import Context

#: As `max.request.partition.size.limit` of Apache Kafka.
MAX_PARTITIONS = 2000


def handle(context: Context, request: Request, body: DescribeTopicPartitionsRequest) -> Steps:
    names = sorted({topic.name for topic in body.topics}) if body.topics else context.image.topic_names()
    yield
    response = DescribeTopicPartitionsResponse(topics=[])
    cursor = body.cursor
    is_lost = cursor is not None and bool(body.topics) and cursor.topic_name not in names
    if cursor is not None and (is_lost or cursor.partition_index < 0):
        for name in names:
            response.topics.append(_error(name, ErrorCode.INVALID_REQUEST))
            yield
    else:
        limit = max(1, min(body.response_partition_limit, MAX_PARTITIONS))
        yield from _add_page(context, response, names, cursor, limit)
    yield from steps.reply(request, response)


def _add_page(
    context: Context,
    response: DescribeTopicPartitionsResponse,
    names: list[str],
    cursor: Cursor | None,
    limit: int,
) -> Steps:
    """Add the topics from the cursor on to the response, `limit` partitions at most."""
    begin = cursor or Cursor(topic_name="", partition_index=0)
    left = limit
    for name in names[bisect_left(names, begin.topic_name) :]:
        yield
        if not left:
            response.next_cursor = Cursor(topic_name=name, partition_index=0)
            break
        record = context.image.topic_named(name)
        if record is None:
            response.topics.append(_error(name, context.view.why_no_topic(name)))
            continue
        first = begin.partition_index if name == begin.topic_name else 0
        topic = DescribeTopicPartitionsResponseTopic(
            name=name,
            topic_id=record.topic_id,
            is_internal=name in INTERNAL_TOPICS,
            partitions=[],
            topic_authorized_operations=TOPIC_OPERATIONS,
        )
        response.topics.append(topic)
        yield from _describe(context, record, range(first, first + left), topic)
        left -= len(topic.partitions)
        behind = first + len(topic.partitions)
        if topic.partitions and behind < len(record.partitions):
            response.next_cursor = Cursor(topic_name=name, partition_index=behind)
            break


def _describe(
    context: Context, record: TopicRecord, numbers: range, topic: DescribeTopicPartitionsResponseTopic
) -> Steps:
    for described in (yield from describe_partitions(context, record, numbers)):
        partition = DescribeTopicPartitionsResponsePartition(
            error_code=described.error_code,
            partition_index=described.partition_index,
            leader_id=described.leader_id,
            leader_epoch=described.leader_epoch,
            replica_nodes=described.replica_nodes,
            isr_nodes=described.isr_nodes,
            offline_replicas=described.offline_replicas,
        )
        topic.partitions.append(partition)
        yield


def _error(name: str, code: ErrorCode) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(error_code=code, name=name, topic_id=NIL_UUID, partitions=[])


API = Api(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, 0, DescribeTopicPartitionsRequest, handle)
