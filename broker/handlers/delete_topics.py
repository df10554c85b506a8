"""DeleteTopics: forwarded to the controller; answered when the deletion is committed.

Behaviour: by name, or from version 6 on by id, and not by both; unknown names are UNKNOWN_TOPIC_OR_PARTITION, unknown
ids UNKNOWN_TOPIC_ID. The logs go afterwards, on each broker by itself. A topic re-created under the name has another
id and starts at offset 0. With delete.topic.enable=false nothing is deleted: TOPIC_DELETION_DISABLED.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

from broker.serving.api import Api
from protocol.api_keys import ApiKey
from protocol.codec import encode
from protocol.errors import ErrorCode
from protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from protocol.schema import NIL_UUID

if TYPE_CHECKING:
    from broker.network.connection import Request
    from broker.serving.context import Context


def handle(context: Context, request: Request, body: DeleteTopicsRequest) -> None:
    wanted: list[tuple[str | None, UUID]]
    if request.api_version >= 6:
        wanted = [(topic.name, topic.topic_id) for topic in body.topics]
    else:
        wanted = [(name, NIL_UUID) for name in body.topic_names]
    refused = [each for each in wanted if not _is_reference(*each)]
    wanted = [each for each in wanted if _is_reference(*each)]

    def answer(result: dict[str, Any]) -> None:
        if request.is_abandoned:
            return
        response = DeleteTopicsResponse(
            responses=_errors(refused, ErrorCode.INVALID_REQUEST, "either a name or an id is needed")
        )
        if result["error_code"] != ErrorCode.NONE:
            response.responses += _errors(wanted, result["error_code"], result.get("message"))
        else:
            response.responses += [
                DeletableTopicResult(
                    name=topic["name"],
                    topic_id=UUID(topic["topic_id"]) if topic["topic_id"] else NIL_UUID,
                    error_code=topic["error_code"],
                    error_message=topic["message"],
                )
                for topic in result["topics"]
            ]
        request.reply_bytes(encode(response, request.api_version))

    if context.config.delete_topic_enable:
        topics = [[name, None if topic_id == NIL_UUID else str(topic_id)] for name, topic_id in wanted]
        context.controller.call("delete_topics", {"topics": topics}, answer)
    else:
        # Clients know the code of its own from version 3 on.
        disabled = ErrorCode.TOPIC_DELETION_DISABLED
        code = disabled if request.api_version >= 3 else ErrorCode.INVALID_REQUEST
        answer({"error_code": code, "message": "delete.topic.enable is false on this broker"})


def _is_reference(name: str | None, topic_id: UUID) -> bool:
    """A name or an id, and not both."""
    return (name is None) != (topic_id == NIL_UUID)


def _errors(
    topics: Sequence[tuple[str | None, UUID]], code: int, message: str | None
) -> list[DeletableTopicResult]:
    return [
        DeletableTopicResult(name=name, topic_id=topic_id, error_code=code, error_message=message)
        for name, topic_id in topics
    ]


API = Api(ApiKey.DELETE_TOPICS, 1, 6, DeleteTopicsRequest, handle)
