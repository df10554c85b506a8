"""CreatePartitions: more partitions for topics that are there (KIP-195); answered when they are committed and have
leaders, or the client's timeout is over: then they are there all the same.

Behaviour: each topic for itself; every check and its code stands in broker.metadata.topic_checks. Partitions never
become fewer. They get as many replicas as the topic's first one has. Keys may belong to other partitions afterwards.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

from broker.serving.api import Api
from protocol.api_keys import ApiKey
from protocol.codec import encode
from protocol.errors import ErrorCode
from protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from storage.log_types import GroupKey

if TYPE_CHECKING:
    from broker.network.connection import Request
    from broker.serving.context import Context


def handle(context: Context, request: Request, body: CreatePartitionsRequest) -> None:
    topics = [
        (
            topic.name,
            topic.count,
            None if topic.assignments is None else [each.broker_ids for each in topic.assignments],
        )
        for topic in body.topics
    ]

    began = context.now()

    def added(result: dict[str, Any]) -> None:
        new = [
            GroupKey(UUID(topic_id), number)
            for topic_id, first, count in result.get("new", ())
            for number in range(first, first + count)
        ]
        context.leader_waits.wait_new(new, began, body.timeout_ms, lambda: answer(result))

    def answer(result: dict[str, Any]) -> None:
        if request.is_abandoned:
            return
        failed = (result["error_code"], result.get("message"))
        if failed[0] == ErrorCode.NONE:
            results = result["topics"]
        else:
            results = [(name, *failed) for name in dict.fromkeys(topic.name for topic in body.topics)]
        response = CreatePartitionsResponse(
            results=[
                CreatePartitionsTopicResult(name=name, error_code=code, error_message=message)
                for name, code, message in results
            ]
        )
        request.reply_bytes(encode(response, request.api_version))

    arguments = {"topics": topics, "validate_only": body.validate_only}
    context.controller.call("create_partitions", arguments, added)


API = Api(ApiKey.CREATE_PARTITIONS, 0, 3, CreatePartitionsRequest, handle)
