"""OffsetFetch: the committed offsets of groups.

Behaviour
- A partition without a committed offset, or of an unknown group or topic, has offset -1 and no error: consumers then
  start as auto.offset.reset says. Null topics stand for all topics that the group has offsets for.
- A group that is named twice is INVALID_REQUEST the second time: each is read once.
- An answer waits for a liveness round, and until the offsets in it are committed. So a stale coordinator cannot answer.
- require_stable (7 and later) asks for UNSTABLE_OFFSET_COMMIT while a transaction is open; there are no transactions.

Versions: 1 no top-level error; 2 null topics; 5 leader epoch; 6 flexible; 8 several groups; 9 member epochs, checked
(KIP-848); 10 topics by id.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING
from uuid import UUID

from broker.groups.offsets import Place
from broker.groups.shard import Shard
from broker.metadata.image import MetadataImage
from broker.serving.answer_in_parts import AnswerInParts
from broker.serving.api import Api
from protocol.api_keys import ApiKey
from protocol.codec import encode
from protocol.errors import ErrorCode
from protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from protocol.schema import NIL_UUID

if TYPE_CHECKING:
    from broker.network.request import Request
    from broker.serving.context import Context


def handle(context: Context, request: Request, body: OffsetFetchRequest) -> None:
    version = request.api_version
    wanted = body.groups if version >= 8 else [_only_group(body)]

    def answer(groups: list[OffsetFetchResponseGroup]) -> None:
        response = OffsetFetchResponse(groups=groups)
        if version < 8:
            response = _single_group_response(groups[0], wanted[0], version)
        request.reply_bytes(encode(response, version))

    # The position where each group is named first. With all offsets of a group a thousand times, an answer could have
    # any size.
    first = {group.group_id: position for position, group in reversed(list(enumerate(wanted)))}

    def ask(position: int, reply: Callable[[OffsetFetchResponseGroup], None]) -> None:
        group = wanted[position]
        failure = partial(_failed, group.group_id)
        if first[group.group_id] != position:
            reply(failure(ErrorCode.INVALID_REQUEST))
            return
        read = partial(_read_group, context.image, version, group)
        context.groups.read(group.group_id, reply, failure, read)

    AnswerInParts(context.loop, len(wanted), ask, answer)


def _only_group(body: OffsetFetchRequest) -> OffsetFetchRequestGroup:
    return OffsetFetchRequestGroup(group_id=body.group_id, topics=body.topics)


def _failed(group_id: str, error: ErrorCode) -> OffsetFetchResponseGroup:
    return OffsetFetchResponseGroup(group_id=group_id, error_code=error)


def _read_group(
    image: MetadataImage, version: int, group: OffsetFetchRequestGroup, shard: Shard
) -> OffsetFetchResponseGroup:
    shard.check_fetch(group.group_id, group.member_id, group.member_epoch)
    answer = OffsetFetchResponseGroup(group_id=group.group_id)
    topics = _all_topics(image, group.group_id, shard) if group.topics is None else group.topics
    # Each partition is answered where it is named first. With its metadata a thousand times, an answer could have any
    # size.
    answered: set[Place] = set()
    for topic in topics:
        name, error = topic.name, ErrorCode.NONE
        if version >= 10:
            record = image.topics.get(topic.topic_id)
            name, error = ("", ErrorCode.UNKNOWN_TOPIC_ID) if record is None else (record.name, error)
        places = dict.fromkeys(Place(name, partition) for partition in topic.partition_indexes)
        answer.topics.append(
            OffsetFetchResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    _partition(shard, group.group_id, place, error, topic.topic_id)
                    for place in places
                    if error != ErrorCode.NONE or place not in answered
                ],
            )
        )
        answered.update(places)
    return answer


def _all_topics(image: MetadataImage, group_id: str, shard: Shard) -> list[OffsetFetchRequestTopic]:
    """The topics that the group has offsets for. Topics that have been deleted have no id and are left out."""
    topics: dict[str, OffsetFetchRequestTopic] = {}
    for place, _ in shard.offsets.of_group(group_id):
        record = image.topic_named(place.topic)
        if record is not None:
            topic = OffsetFetchRequestTopic(name=place.topic, topic_id=record.topic_id, partition_indexes=[])
            topics.setdefault(place.topic, topic).partition_indexes.append(place.partition)
    return list(topics.values())


def _partition(
    shard: Shard, group_id: str, place: Place, error: ErrorCode, topic_id: UUID
) -> OffsetFetchResponsePartition:
    """The committed offset of a partition. A client that names the topic by its id does not get the offset of an
    earlier topic with the same name."""
    answer = OffsetFetchResponsePartition(partition_index=place.partition, error_code=error)
    committed = shard.offsets.get(group_id, place)
    if committed is not None and (
        committed.topic_id == topic_id or NIL_UUID in (committed.topic_id, topic_id)
    ):
        answer.committed_offset = committed.offset
        answer.committed_leader_epoch = committed.leader_epoch
        answer.metadata = committed.metadata
    return answer


def _single_group_response(
    group: OffsetFetchResponseGroup, wanted: OffsetFetchRequestGroup, version: int
) -> OffsetFetchResponse:
    """The response of versions before 8. Version 1 has no error code for the group, so each partition gets it."""
    if version == 1 and group.error_code != ErrorCode.NONE:
        group.topics = [
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(partition_index=index, error_code=group.error_code)
                    for index in topic.partition_indexes
                ],
            )
            for topic in wanted.topics or ()
        ]
    return OffsetFetchResponse(error_code=group.error_code, topics=group.topics)


API = Api(ApiKey.OFFSET_FETCH, 1, 10, OffsetFetchRequest, handle)
