"""DescribeTopicPartitions: the topics of Metadata, page by page (KIP-966).

Behaviour
- Topics come in the order of their names, each once. Without names all topics are shown. An unknown topic has an error.
- A page has at most `response_partition_limit` partitions (at least one, at most MAX_PARTITIONS). Its cursor names the
  partition where the next page begins.
- A cursor with a topic that the request does not name, or with a negative partition: INVALID_REQUEST for each topic.
- Eligible leader replicas are always empty: Raft elects any replica that holds all acknowledged records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.handlers.metadata import TOPIC_OPERATIONS, describe_partitions
from broker.metadata.ids import INTERNAL_TOPICS
from broker.metadata.records import TopicRecord
from broker.serving.api import Api
from protocol.api_keys import ApiKey
from protocol.codec import encode
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


def handle(context: Context, request: Request, body: DescribeTopicPartitionsRequest) -> None:
    image = context.image
    if body.topics:
        names = sorted({topic.name for topic in body.topics})
    else:
        names = [topic.name for topic in image.topics_by_name()]
    response = DescribeTopicPartitionsResponse(topics=[])
    cursor = body.cursor
    is_lost = cursor is not None and bool(body.topics) and cursor.topic_name not in names
    if cursor is not None and (is_lost or cursor.partition_index < 0):
        response.topics = [_error(name, ErrorCode.INVALID_REQUEST) for name in names]
    else:
        begin = cursor or Cursor(topic_name="", partition_index=0)
        left = max(1, min(body.response_partition_limit, MAX_PARTITIONS))
        for name in names:
            if name < begin.topic_name:
                continue
            if not left:
                response.next_cursor = Cursor(topic_name=name, partition_index=0)
                break
            record = image.topic_named(name)
            if record is None:
                response.topics.append(_error(name, context.view.why_no_topic(name)))
                continue
            first = begin.partition_index if name == begin.topic_name else 0
            topic = _describe(context, record, first, left)
            response.topics.append(topic)
            left -= len(topic.partitions)
            behind = first + len(topic.partitions)
            if topic.partitions and behind < len(record.partitions):
                response.next_cursor = Cursor(topic_name=name, partition_index=behind)
                break
    request.reply_bytes(encode(response, request.api_version))


def _describe(
    context: Context, topic: TopicRecord, first: int, limit: int
) -> DescribeTopicPartitionsResponseTopic:
    numbers = range(first, min(first + limit, len(topic.partitions)))
    partitions = [
        DescribeTopicPartitionsResponsePartition(
            error_code=described.error_code,
            partition_index=described.partition_index,
            leader_id=described.leader_id,
            leader_epoch=described.leader_epoch,
            replica_nodes=described.replica_nodes,
            isr_nodes=described.isr_nodes,
            offline_replicas=described.offline_replicas,
        )
        for described in describe_partitions(context, topic, numbers)
    ]
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=partitions,
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


def _error(name: str, code: ErrorCode) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(error_code=code, name=name, topic_id=NIL_UUID, partitions=[])


API = Api(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, 0, DescribeTopicPartitionsRequest, handle)
