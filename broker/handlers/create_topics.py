"""CreateTopics: forwarded to the controller by whichever broker was asked; answered when the topics are committed and
have leaders, or the client's timeout is over: then they are there all the same.

Behaviour: every check and its error code stands in broker.metadata.decisions.topics. From version 5 on the answer
carries the topic's effective configuration (never null: the Java AdminClient fails on that), from 7 on its id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

from broker.serving.api import Api
from protocol.api_keys import ApiKey
from protocol.codec import encode
from protocol.errors import ErrorCode
from protocol.messages.create_topics import (
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from storage.log_types import GroupKey

if TYPE_CHECKING:
    from broker.network.connection import Request
    from broker.serving.context import Context


def handle(context: Context, request: Request, body: CreateTopicsRequest) -> None:
    arguments = {
        "validate_only": body.validate_only,
        "topics": [
            {
                "name": topic.name,
                "num_partitions": topic.num_partitions,
                "replication_factor": topic.replication_factor,
                "assignments": [[a.partition_index, a.broker_ids] for a in topic.assignments],
                "configs": [[config.name, config.value] for config in topic.configs],
            }
            for topic in body.topics
        ],
    }

    began = context.now()

    def created(result: dict[str, Any]) -> None:
        made = [
            GroupKey(UUID(topic["topic_id"]), number)
            for topic in result.get("topics", ())
            if topic.get("topic_id")  # validate_only makes no topic, nor does an error
            for number in range(topic["num_partitions"])
        ]
        context.leader_waits.wait_new(made, began, body.timeout_ms, lambda: answer(result))

    def answer(result: dict[str, Any]) -> None:
        if request.is_abandoned:
            return
        response = CreateTopicsResponse(topics=[])
        if result["error_code"] != ErrorCode.NONE:
            response.topics = [
                CreatableTopicResult(
                    name=topic.name, error_code=result["error_code"], error_message=result.get("message")
                )
                for topic in body.topics
            ]
        else:
            response.topics = [_result(topic) for topic in result["topics"]]
        request.reply_bytes(encode(response, request.api_version))

    context.controller.call("create_topics", arguments, created)


def _result(topic: dict[str, Any]) -> CreatableTopicResult:
    result = CreatableTopicResult(
        name=topic["name"], error_code=topic["error_code"], error_message=topic["message"]
    )
    if topic["error_code"] == ErrorCode.NONE:
        if topic["topic_id"] is not None:  # validate_only makes no topic
            result.topic_id = UUID(topic["topic_id"])
        result.num_partitions = topic["num_partitions"]
        result.replication_factor = topic["replication_factor"]
        result.configs = [
            CreatableTopicConfigs(name=name, value=value, config_source=source)
            for name, value, source in topic["configs"]
        ]
    return result


API = Api(ApiKey.CREATE_TOPICS, 2, 7, CreateTopicsRequest, handle)
