"""What is asked of a group's coordinator by whoever commits and fetches offsets."""

from __future__ import annotations

from collections.abc import Mapping

from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from tests.simulator.client import Connection
from tests.simulator.invariants.offsets_never_back import Committed
from tests.simulator.oracle import Oracle

OFFSET_COMMIT_VERSION = 9
OFFSET_FETCH_VERSION = 8
#: Errors after which somebody asks for the coordinator again. Nothing says whether a commit took effect, but it is
#: decided: what the next coordinator does not have never comes.
COORDINATOR_RETRIABLE = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
)
#: (topic, partition)
Place = tuple[str, int]


async def commit(
    connection: Connection,
    oracle: Oracle,
    group: str,
    offsets: Mapping[Place, int],
    *,
    member_id: str = "",
    generation: int = -1,
) -> ErrorCode:
    """Of one topic's partitions, so that an error is the same for all. Raises OSError, TimeoutError: it may take effect
    later."""
    topics = [
        OffsetCommitRequestTopic(
            name=topic,
            partitions=[OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)],
        )
        for (topic, partition), offset in offsets.items()
    ]
    body = OffsetCommitRequest(
        group_id=group, generation_id_or_member_epoch=generation, member_id=member_id, topics=topics
    )
    floors = {place: oracle.offsets.floor(Committed(group, *place)) for place in offsets}
    for place, offset in offsets.items():
        oracle.offsets.sent(Committed(group, *place), offset)
    answer = await connection.request(ApiKey.OFFSET_COMMIT, OFFSET_COMMIT_VERSION, body, OffsetCommitResponse)
    codes = {each.error_code for topic in answer.topics for each in topic.partitions}
    if codes == {ErrorCode.NONE}:
        for place, offset in offsets.items():
            oracle.offsets.acknowledged(Committed(group, *place), floors[place], offset)
    (code,) = codes
    return ErrorCode(code)


async def fetch(
    connection: Connection, oracle: Oracle, group: str, places: list[Place]
) -> tuple[ErrorCode, dict[Place, int]]:
    """Offset -1: nothing is committed. Raises OSError, TimeoutError."""
    wanted = [OffsetFetchRequestTopic(name=topic, partition_indexes=[index]) for topic, index in places]
    body = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=wanted)])
    floors = {place: oracle.offsets.floor(Committed(group, *place)) for place in places}
    answer = await connection.request(ApiKey.OFFSET_FETCH, OFFSET_FETCH_VERSION, body, OffsetFetchResponse)
    (found,) = answer.groups
    offsets: dict[Place, int] = {}
    for topic in found.topics:
        for each in topic.partitions:
            assert each.error_code == ErrorCode.NONE, ErrorCode(each.error_code)
            place = topic.name, each.partition_index
            offsets[place] = each.committed_offset
            oracle.offsets.fetched(Committed(group, *place), floors[place], each.committed_offset)
    return ErrorCode(found.error_code), offsets
