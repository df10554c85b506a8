"""DeleteTopics: forwarded to the controller; answered when the deletion is committed.

Behaviour: by name, or from version 6 on by id, and not by both; unknown names are UNKNOWN_TOPIC_OR_PARTITION, unknown
ids UNKNOWN_TOPIC_ID. Each broker deletes its logs afterwards. A topic that is created again under the name has another
id and starts at offset 0. With delete.topic.enable=false nothing is deleted: TOPIC_DELETION_DISABLED.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from broker.serving import steps
from broker.serving.api import Api
from broker.serving.steps import Steps
from protocol.api_keys import ApiKey
from protocol.controller.topics import DeleteTopics, DeleteTopicsResult, TopicReference
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from protocol.schema import NIL_UUID

if TYPE_CHECKING:
    from broker.network.request import Request
    from broker.serving.context import Context


def handle(context: Context, request: Request, body: DeleteTopicsRequest) -> Steps:
    refused: list[TopicReference] = []
    wanted: list[TopicReference] = []
    for each in _named(request, body):
        # Either a name or an id, and not both.
        is_reference = (each.name is None) != (each.topic_id == NIL_UUID)
        (wanted if is_reference else refused).append(each)
        yield

    def answer(result: DeleteTopicsResult | KafkaError) -> None:
        context.long_requests.resume(request, _answer(request, refused, wanted, result))

    if context.config.delete_topic_enable:
        context.controller.call(DeleteTopics(topics=wanted), answer)
    else:
        # Clients know TOPIC_DELETION_DISABLED from version 3 on.
        disabled = ErrorCode.TOPIC_DELETION_DISABLED
        code = disabled if request.api_version >= 3 else ErrorCode.INVALID_REQUEST
        off = KafkaError(code, "delete.topic.enable is false on this broker")
        yield from _answer(request, refused, wanted, off)


def _named(request: Request, body: DeleteTopicsRequest) -> Iterator[TopicReference]:
    if request.api_version >= 6:
        return (TopicReference(name=topic.name, topic_id=topic.topic_id) for topic in body.topics)
    return (TopicReference(name=name) for name in body.topic_names)


def _answer(
    request: Request,
    refused: Sequence[TopicReference],
    wanted: Sequence[TopicReference],
    result: DeleteTopicsResult | KafkaError,
) -> Steps:
    response = DeleteTopicsResponse(responses=[])
    yield from _add_errors(
        response, refused, KafkaError(ErrorCode.INVALID_REQUEST, "either a name or an id is needed")
    )
    if isinstance(result, KafkaError):
        yield from _add_errors(response, wanted, result)
    else:
        for topic in result.topics:
            response.responses.append(
                DeletableTopicResult(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    error_code=topic.error_code,
                    error_message=topic.error_message,
                )
            )
            yield
    yield from steps.reply(request, response)


def _add_errors(response: DeleteTopicsResponse, topics: Sequence[TopicReference], error: KafkaError) -> Steps:
    for topic in topics:
        response.responses.append(
            DeletableTopicResult(
                name=topic.name, topic_id=topic.topic_id, error_code=error.code, error_message=error.message
            )
        )
        yield


API = Api(ApiKey.DELETE_TOPICS, 1, 6, DeleteTopicsRequest, handle)
