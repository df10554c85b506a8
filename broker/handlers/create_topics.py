"""CreateTopics: forwarded to the controller by whichever broker was asked; answered when the topics are committed and
have leaders, or when the client's timeout is over; the topics are created then all the same.

Behaviour: the checks and their error codes are in broker.metadata.decisions.topics. From version 5 on the answer
carries the topic's effective configuration (never null: the Java AdminClient fails on that), from 7 on its id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.serving.api import Api
from protocol.api_keys import ApiKey
from protocol.codec import encode
from protocol.controller.topics import (
    CreatedTopic,
    CreateTopics,
    CreateTopicsResult,
    NewTopic,
    ReplicaAssignment,
    TopicSetting,
)
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.create_topics import (
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from protocol.schema import NIL_UUID
from storage.log_types import GroupKey

if TYPE_CHECKING:
    from broker.network.request import Request
    from broker.serving.context import Context


def handle(context: Context, request: Request, body: CreateTopicsRequest) -> None:
    wanted = CreateTopics(
        topics=[
            NewTopic(
                name=topic.name,
                num_partitions=topic.num_partitions,
                replication_factor=topic.replication_factor,
                assignments=[
                    ReplicaAssignment(partition=each.partition_index, node_ids=each.broker_ids)
                    for each in topic.assignments
                ],
                settings=[TopicSetting(name=each.name, value=each.value) for each in topic.configs],
            )
            for topic in body.topics
        ],
        validate_only=body.validate_only,
    )
    began = context.now()

    def created(result: CreateTopicsResult | KafkaError) -> None:
        made = [
            GroupKey(topic.topic_id, number)
            for topic in ([] if isinstance(result, KafkaError) else result.topics)
            if topic.topic_id != NIL_UUID
            for number in range(topic.num_partitions)
        ]
        context.leader_waits.wait_for_new_partitions(made, began, body.timeout_ms, lambda: answer(result))

    def answer(result: CreateTopicsResult | KafkaError) -> None:
        if request.is_abandoned:
            return
        if isinstance(result, KafkaError):
            topics = [
                CreatableTopicResult(name=each.name, error_code=result.code, error_message=result.message)
                for each in body.topics
            ]
        else:
            topics = [_result(context, topic) for topic in result.topics]
        request.reply_bytes(encode(CreateTopicsResponse(topics=topics), request.api_version))

    context.controller.call(wanted, created)


def _result(context: Context, topic: CreatedTopic) -> CreatableTopicResult:
    if topic.error_code != ErrorCode.NONE:
        return CreatableTopicResult(
            name=topic.name, error_code=topic.error_code, error_message=topic.error_message
        )
    overrides = {each.name: each.value for each in topic.settings if each.value is not None}
    return CreatableTopicResult(
        name=topic.name,
        topic_id=topic.topic_id,
        num_partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        configs=[
            CreatableTopicConfigs(name=row.name, value=row.value, config_source=row.source)
            for row in context.resources.describe_topic(overrides)
        ],
    )


API = Api(ApiKey.CREATE_TOPICS, 2, 7, CreateTopicsRequest, handle)
