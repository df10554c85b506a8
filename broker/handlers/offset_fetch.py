"""OffsetFetch: the committed offsets of groups.

Behaviour
- A partition without a committed offset, or of an unknown group or topic, has offset -1 and no error: consumers then
  start as auto.offset.reset says. Null topics stand for all topics that the group has offsets for.
- A group that is named twice is INVALID_REQUEST the second time: each is read once.
- An answer waits for a liveness round, and until the offsets in it are committed. So a stale coordinator cannot answer.
- Offsets of open transactions are not seen. With require_stable (7 and later) a partition that has one is
  UNSTABLE_OFFSET_COMMIT, which clients retry: what was committed before may have been processed again meanwhile.

Versions: 1 no top-level error; 2 null topics; 5 leader epoch; 6 flexible; 8 several groups; 9 member epochs, checked
(KIP-848); 10 topics by id.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import TYPE_CHECKING
from uuid import UUID

from broker.groups.commit import Place
from broker.groups.shard import Shard
from broker.metadata.image import MetadataImage
from broker.serving import steps
from broker.serving.api import Api
from broker.serving.coordinator_answers import answer_about_keys
from broker.serving.steps import Steps
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode, KafkaError
from protocol.group_records import OffsetCommitValue
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

#: So many partitions of a group are looked at in one step.
_FEW = 50


def handle(context: Context, request: Request, body: OffsetFetchRequest) -> Steps:
    version = request.api_version
    wanted = body.groups if version >= 8 else [_only_group(body)]
    # Each group where it is named first. With all offsets of a group a thousand times, an answer could have any size.
    first: dict[str, OffsetFetchRequestGroup] = {}
    for group in wanted:
        first.setdefault(group.group_id, group)
        yield

    def look(shard: Shard, group_id: str) -> Generator[None, None, OffsetFetchResponseGroup]:
        unstable = shard.offsets.pending_places(group_id) if body.require_stable else frozenset()
        return _read_group(context.image, version, first[group_id], shard, unstable)

    def reply(parts: dict[str, OffsetFetchResponseGroup]) -> Steps:
        response = OffsetFetchResponse(groups=[])
        if version < 8:
            response = _single_group_response(parts[wanted[0].group_id], wanted[0], version)
        else:
            for group in wanted:
                if group is first[group.group_id]:
                    response.groups.append(parts[group.group_id])
                else:
                    response.groups.append(_refused(group.group_id, ErrorCode.INVALID_REQUEST))
                yield
        yield from steps.reply(request, response)

    yield from answer_about_keys(context, request, context.groups.reading(), first, look, _failed, reply)


def _only_group(body: OffsetFetchRequest) -> OffsetFetchRequestGroup:
    return OffsetFetchRequestGroup(group_id=body.group_id, topics=body.topics)


def _failed(group_id: str, error: KafkaError) -> OffsetFetchResponseGroup:
    return _refused(group_id, error.code)


def _refused(group_id: str, error: ErrorCode) -> OffsetFetchResponseGroup:
    return OffsetFetchResponseGroup(group_id=group_id, error_code=error)


def _read_group(
    image: MetadataImage,
    version: int,
    group: OffsetFetchRequestGroup,
    shard: Shard,
    unstable: frozenset[Place],
) -> Generator[None, None, OffsetFetchResponseGroup]:
    shard.check_fetch(group.group_id, group.member_id, group.member_epoch)
    is_small = group.topics is not None and sum(len(x.partition_indexes) for x in group.topics) <= _FEW
    offsets = shard.offsets.of_group_by_topic(group.group_id)
    if not is_small:
        # A copy, because the group may commit between two steps. Nobody shall see half of a commit.
        offsets = {topic: dict(partitions) for topic, partitions in offsets.items()}
    topics = group.topics
    if topics is None:
        topics = yield from _all_topics(image, offsets)
    answer = OffsetFetchResponseGroup(group_id=group.group_id)
    # Each partition is answered where it is named first. With its metadata a thousand times, an answer could have any
    # size.
    answered: set[tuple[str, int]] = set()
    for topic in topics:
        name, error = topic.name, ErrorCode.NONE
        if version >= 10:
            record = image.topics.get(topic.topic_id)
            name, error = ("", ErrorCode.UNKNOWN_TOPIC_ID) if record is None else (record.name, error)
        found = OffsetFetchResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=[])
        answer.topics.append(found)
        committed = offsets.get(name, {})
        for partition in dict.fromkeys(topic.partition_indexes):
            if error != ErrorCode.NONE or (name, partition) not in answered:
                answered.add((name, partition))
                value, error_here = committed.get(partition), error
                if Place(name, partition) in unstable and error == ErrorCode.NONE:
                    value, error_here = None, ErrorCode.UNSTABLE_OFFSET_COMMIT
                found.partitions.append(_partition(partition, value, error_here, topic.topic_id))
            if not is_small:
                yield
        if not is_small:
            yield
    return answer


def _all_topics(
    image: MetadataImage, offsets: Mapping[str, Mapping[int, OffsetCommitValue]]
) -> Generator[None, None, list[OffsetFetchRequestTopic]]:
    """The topics that the group has offsets for. Topics that have been deleted have no id and are left out."""
    topics: list[OffsetFetchRequestTopic] = []
    for name, partitions in offsets.items():
        record = image.topic_named(name)
        if record is not None:
            indexes = list(partitions)
            topics.append(
                OffsetFetchRequestTopic(name=name, topic_id=record.topic_id, partition_indexes=indexes)
            )
        yield
    return topics


def _partition(
    partition: int, committed: OffsetCommitValue | None, error: ErrorCode, topic_id: UUID
) -> OffsetFetchResponsePartition:
    """The committed offset of a partition. A client that names the topic by its id does not get the offset of an
    earlier topic with the same name."""
    answer = OffsetFetchResponsePartition(partition_index=partition, error_code=error)
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
    """The response of versions before 8. An error of the group is each partition's, too: version 1 has no field for
    it, and aiokafka (version 3) does not look at that field, and would take nothing for committed."""
    if group.error_code != ErrorCode.NONE:
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
