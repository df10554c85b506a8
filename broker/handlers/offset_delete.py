"""OffsetDelete: delete a group's committed offsets of some partitions (KIP-496).

Behaviour: GROUP_SUBSCRIBED_TO_TOPIC for topics that members are subscribed to, UNKNOWN_TOPIC_OR_PARTITION for topics
and partitions that do not exist, NON_EMPTY_GROUP if the members use a protocol without topic names, GROUP_ID_NOT_FOUND
if the group does not exist. Deleting an offset that was never committed succeeds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.groups.commit import CommitAnswer, Place
from broker.serving import steps
from broker.serving.api import Api
from broker.serving.steps import Steps
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

if TYPE_CHECKING:
    from broker.network.request import Request
    from broker.serving.context import Context


def handle(context: Context, request: Request, body: OffsetDeleteRequest) -> Steps:
    topics: list[OffsetDeleteResponseTopic] = []
    places: list[Place] = []
    slots: list[OffsetDeleteResponsePartition] = []
    for topic in body.topics:
        record = context.image.topic_named(topic.name)
        count = 0 if record is None else len(record.partitions)
        answered = OffsetDeleteResponseTopic(name=topic.name, partitions=[])
        topics.append(answered)
        for each in topic.partitions:
            slot = OffsetDeleteResponsePartition(partition_index=each.partition_index)
            answered.partitions.append(slot)
            if 0 <= each.partition_index < count:
                places.append(Place(topic.name, each.partition_index))
                slots.append(slot)
            else:
                slot.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            yield
        yield

    def answer(result: CommitAnswer) -> None:
        response = OffsetDeleteResponse(error_code=result.error)
        if result.error == ErrorCode.NONE:
            for slot, error in zip(slots, result.errors, strict=True):
                slot.error_code = error
            response.topics = topics
        steps.finish(context, request, response, len(slots) + len(topics))

    context.groups.ask_confirmed(
        body.group_id,
        answer,
        lambda error: CommitAnswer(error, []),
        lambda shard, ticket, now, now_ms: shard.delete_offsets(ticket, body.group_id, places),
    )


API = Api(ApiKey.OFFSET_DELETE, 0, 0, OffsetDeleteRequest, handle)
