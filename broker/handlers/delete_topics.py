"""DeleteTopics: forwarded to the controller; answered when the deletion is committed.

Behaviour: by name, or from version 6 on by id, and not by both; unknown names are UNKNOWN_TOPIC_OR_PARTITION, unknown
ids UNKNOWN_TOPIC_ID. Each broker deletes its logs afterwards. A topic that is created again under the name has another
id and starts at offset 0. With delete.topic.enable=false nothing is deleted: TOPIC_DELETION_DISABLED.

This node looks up the ids of the names before the controller is asked, in an image that has caught up with it. The
request may reach one controller and be repeated to the next, and in between a client may have created a topic of the
same name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING
from uuid import UUID

from broker.metadata.image import MetadataImage
from broker.metadata.records import TopicRecord
from broker.serving import steps
from broker.serving.api import Api
from broker.serving.steps import Steps
from protocol.api_keys import ApiKey
from protocol.controller.topics import DeleteTopics, DeleteTopicsResult
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from protocol.schema import NIL_UUID

if TYPE_CHECKING:
    from broker.network.request import Request
    from broker.serving.context import Context

#: Name and id of a topic, as the client gives them. One of the two is missing, in a request that is right.
_Reference = tuple[str | None, UUID]


def handle(context: Context, request: Request, body: DeleteTopicsRequest) -> Steps:
    references: Counter[_Reference] = Counter()
    for reference in _references(request, body):
        references[reference] += 1
        yield
    if not context.config.delete_topic_enable:
        # Clients know TOPIC_DELETION_DISABLED from version 3 on.
        disabled = ErrorCode.TOPIC_DELETION_DISABLED
        code = disabled if request.api_version >= 3 else ErrorCode.INVALID_REQUEST
        off = KafkaError(code, "delete.topic.enable is false on this broker")
        yield from _refuse(request, references, off)
        return

    def caught_up(is_current: bool) -> None:
        late = KafkaError(ErrorCode.REQUEST_TIMED_OUT, "the controller did not answer")
        following = (
            _delete(context, request, references) if is_current else _refuse(request, references, late)
        )
        context.long_requests.resume(request, following)

    context.controller.catch_up(caught_up)


def _references(request: Request, body: DeleteTopicsRequest) -> Iterable[_Reference]:
    if request.api_version >= 6:
        return ((topic.name, topic.topic_id) for topic in body.topics)
    return ((name, NIL_UUID) for name in body.topic_names)


def _delete(context: Context, request: Request, references: Counter[_Reference]) -> Steps:
    response = DeleteTopicsResponse(responses=[])
    wanted: dict[UUID, DeletableTopicResult] = {}
    for (name, topic_id), count in references.items():
        yield
        result = DeletableTopicResult(name=name, topic_id=topic_id)
        response.responses.append(result)
        try:
            topic = _find(context.image, name, topic_id)
            result.name, result.topic_id = topic.name, topic.topic_id
            if count > 1 or topic.topic_id in wanted:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "named twice in the request")
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
        else:
            wanted[topic.topic_id] = result

    def deleted(outcome: DeleteTopicsResult | KafkaError) -> None:
        context.long_requests.resume(request, _answer(request, response, wanted, outcome))

    context.controller.call(DeleteTopics(topic_ids=list(wanted)), deleted)


def _find(image: MetadataImage, name: str | None, topic_id: UUID) -> TopicRecord:
    if (name is None) == (topic_id == NIL_UUID):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "either a name or an id is needed")
    topic = image.topics.get(topic_id) if name is None else image.topic_named(name)
    if topic is not None:
        return topic
    if name is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, f"there is no topic with the id {topic_id}")
    raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")


def _answer(
    request: Request,
    response: DeleteTopicsResponse,
    wanted: dict[UUID, DeletableTopicResult],
    outcome: DeleteTopicsResult | KafkaError,
) -> Steps:
    """`wanted`: the results that the controller decides, by id."""
    if isinstance(outcome, KafkaError):
        for result in wanted.values():
            result.error_code, result.error_message = outcome.code, outcome.message
            yield
    else:
        for topic in outcome.topics:
            # The topic was there when this request came. If it is gone, it is deleted: by this request, whose answer
            # was lost, or by another one at the same time.
            if topic.error_code != ErrorCode.UNKNOWN_TOPIC_ID:
                result = wanted[topic.topic_id]
                result.error_code, result.error_message = topic.error_code, topic.error_message
            yield
    yield from steps.reply(request, response)


def _refuse(request: Request, references: Iterable[_Reference], error: KafkaError) -> Steps:
    response = DeleteTopicsResponse(responses=[])
    for name, topic_id in references:
        response.responses.append(
            DeletableTopicResult(
                name=name, topic_id=topic_id, error_code=error.code, error_message=error.message
            )
        )
        yield
    yield from steps.reply(request, response)


API = Api(ApiKey.DELETE_TOPICS, 1, 6, DeleteTopicsRequest, handle)
