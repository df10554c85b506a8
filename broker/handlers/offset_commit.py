"""OffsetCommit: a group commits its offsets.

Behaviour
- Partitions that do not exist are UNKNOWN_TOPIC_OR_PARTITION, unknown topic ids UNKNOWN_TOPIC_ID, each by itself. The
  group decides about the others, which are committed together or not at all.
- Generation -1 is a commit by a client that is not a member. It is accepted if the group has no members, and creates a
  group that has only offsets.
- Metadata beyond offset.metadata.max.bytes: OFFSET_METADATA_TOO_LARGE for that partition. Null is "".
- A commit is answered when it is durable on a majority. No space on the disk: COORDINATOR_NOT_AVAILABLE.

Versions: 2-4 may set the retention time of the commit; 6 leader epoch; 7 static members; 8 flexible; 9 member epochs
(KIP-848: earlier ones are UNSUPPORTED_VERSION for its members), and GROUP_ID_NOT_FOUND instead of
ILLEGAL_GENERATION; 10 topics by id.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat
from typing import TYPE_CHECKING

from broker.groups.commit import CommitAnswer, CommitRequest, OffsetToCommit
from broker.metadata.records import TopicRecord
from broker.serving import steps
from broker.serving.api import Api
from broker.serving.steps import Steps
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from broker.network.request import Request
    from broker.serving.context import Context


#: Partitions that are looked at in one step.
_FEW = 50


def handle(context: Context, request: Request, body: OffsetCommitRequest) -> Steps:
    response = OffsetCommitResponse(topics=[])
    offsets: list[OffsetToCommit] = []
    slots: list[OffsetCommitResponsePartition] = []
    for topic in body.topics:
        answered = OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=[])
        response.topics.append(answered)
        for offset, slot in _validated_partitions(context, request.api_version, topic):
            answered.partitions.append(slot)
            if offset is not None:
                offsets.append(offset)
                slots.append(slot)
            if len(answered.partitions) % _FEW == 0:
                yield
        if len(response.topics) % _FEW == 0:
            yield

    def answer(result: CommitAnswer) -> None:
        for slot, error in zip(slots, result.errors or repeat(result.error), strict=False):
            slot.error_code = _in_version(request.api_version, error)
        steps.finish(context, request, response, len(slots) + len(body.topics))

    if not offsets:
        answer(CommitAnswer(ErrorCode.NONE, []))
        return
    try:
        context.replicas.check_space()
    except KafkaError:
        answer(CommitAnswer(ErrorCode.COORDINATOR_NOT_AVAILABLE, []))
        return
    commit = CommitRequest(
        body.group_id,
        offsets,
        body.member_id,
        body.group_instance_id,
        body.generation_id_or_member_epoch,
        body.retention_time_ms,
        knows_epochs=request.api_version >= 9,
    )
    context.groups.ask(
        body.group_id,
        answer,
        lambda error: CommitAnswer(error, []),
        lambda shard, ticket, now, now_ms: shard.commit_offsets(ticket, commit, now, now_ms),
    )


def _validated_partitions(
    context: Context, version: int, topic: OffsetCommitRequestTopic
) -> Iterator[tuple[OffsetToCommit | None, OffsetCommitResponsePartition]]:
    """Each partition of the request and its part of the answer. The offset is None if that part has an error
    already."""
    image = context.image
    record: TopicRecord | None
    if version >= 10:
        record, unknown = image.topics.get(topic.topic_id), ErrorCode.UNKNOWN_TOPIC_ID
    else:
        record, unknown = image.topic_named(topic.name), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for each in topic.partitions:
        slot = OffsetCommitResponsePartition(partition_index=each.partition_index)
        if record is None:
            slot.error_code = unknown
            yield None, slot
        elif not 0 <= each.partition_index < len(record.partitions):
            slot.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            yield None, slot
        else:
            offset = OffsetToCommit(
                record.name,
                record.topic_id,
                each.partition_index,
                each.committed_offset,
                each.committed_leader_epoch,
                each.committed_metadata or "",
            )
            yield offset, slot


def _in_version(version: int, error: ErrorCode) -> ErrorCode:
    """The error as clients of this version know it: before KIP-848 they do not expect GROUP_ID_NOT_FOUND."""
    if version < 9 and error == ErrorCode.GROUP_ID_NOT_FOUND:
        return ErrorCode.ILLEGAL_GENERATION
    return error


API = Api(ApiKey.OFFSET_COMMIT, 2, 10, OffsetCommitRequest, handle)
