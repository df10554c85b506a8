"""DeleteTopics: forwarded to the controller; answered when the deletion is committed.

Behaviour: by name, or from version 6 on by id, and not by both; unknown names are UNKNOWN_TOPIC_OR_PARTITION, unknown
ids UNKNOWN_TOPIC_ID. Each broker deletes its logs afterwards. A topic that is created again under the name has another
id and starts at offset 0. With delete.topic.enable=false nothing is deleted: TOPIC_DELETION_DISABLED.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from broker.serving.api import Api
from protocol.api_keys import ApiKey
from protocol.codec import encode
from protocol.controller.topics import DeleteTopics, DeleteTopicsResult, TopicReference
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from protocol.schema import NIL_UUID

if TYPE_CHECKING:
    from broker.network.request import Request
    from broker.serving.context import Context


def handle(context: Context, request: Request, body: DeleteTopicsRequest) -> None:
    if request.api_version >= 6:
        named = [TopicReference(name=topic.name, topic_id=topic.topic_id) for topic in body.topics]
    else:
        named = [TopicReference(name=name) for name in body.topic_names]
    refused = [each for each in named if not _is_reference(each)]
    wanted = [each for each in named if _is_reference(each)]

    def answer(result: DeleteTopicsResult | KafkaError) -> None:
        if request.is_abandoned:
            return
        invalid = KafkaError(ErrorCode.INVALID_REQUEST, "either a name or an id is needed")
        responses = _errors(refused, invalid)
        if isinstance(result, KafkaError):
            responses += _errors(wanted, result)
        else:
            responses += [
                DeletableTopicResult(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    error_code=topic.error_code,
                    error_message=topic.error_message,
                )
                for topic in result.topics
            ]
        request.reply_bytes(encode(DeleteTopicsResponse(responses=responses), request.api_version))

    if context.config.delete_topic_enable:
        context.controller.call(DeleteTopics(topics=wanted), answer)
    else:
        # Clients know TOPIC_DELETION_DISABLED from version 3 on.
        disabled = ErrorCode.TOPIC_DELETION_DISABLED
        code = disabled if request.api_version >= 3 else ErrorCode.INVALID_REQUEST
        answer(KafkaError(code, "delete.topic.enable is false on this broker"))


def _is_reference(topic: TopicReference) -> bool:
    """A name or an id, and not both."""
    return (topic.name is None) != (topic.topic_id == NIL_UUID)


def _errors(topics: Sequence[TopicReference], error: KafkaError) -> list[DeletableTopicResult]:
    return [
        DeletableTopicResult(
            name=topic.name, topic_id=topic.topic_id, error_code=error.code, error_message=error.message
        )
        for topic in topics
    ]


API = Api(ApiKey.DELETE_TOPICS, 1, 6, DeleteTopicsRequest, handle)
