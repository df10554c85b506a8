"""Requests about groups to the nodes of a `World`."""

from __future__ import annotations

from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
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
    OffsetFetchResponseGroup,
)
from tests.broker.asking import ask
from tests.broker.world import World

#: A cluster with few partitions of `__consumer_offsets` starts sooner.
FEW = {"offsets.topic.num.partitions": "3"}


def coordinator(world: World, group_id: str) -> int:
    """Wait for the coordinator of a group that has loaded it. Returns its node id."""
    body = FindCoordinatorRequest(key_type=0, coordinator_keys=[group_id])
    for _ in range(200):
        asked = next(iter(world.nodes))
        answer = ask(world, asked, ApiKey.FIND_COORDINATOR, 4, body, FindCoordinatorResponse)
        node_id = answer.coordinators[0].node_id
        if node_id in world.nodes and fetch(world, node_id, group_id).error_code == ErrorCode.NONE:
            return node_id
        pass_time(world, 0.05)
    raise AssertionError(f"nobody coordinates {group_id}")


def pass_time(world: World, seconds: float) -> None:
    passed: list[None] = []
    world.loop.call_later(seconds, passed.append, None)
    world.wait(lambda: bool(passed), limit_s=seconds + 1)


def commit_request(
    group_id: str, topic: str, offsets: dict[int, int], **member: object
) -> OffsetCommitRequest:
    partitions = [
        OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)
        for partition, offset in offsets.items()
    ]
    topics = [OffsetCommitRequestTopic(name=topic, partitions=partitions)]
    return OffsetCommitRequest(group_id=group_id, topics=topics, **member)  # type: ignore[arg-type]


def commit(world: World, node_id: int, body: OffsetCommitRequest, version: int = 9) -> list[int]:
    """The error code of each partition, in order."""
    answer = ask(world, node_id, ApiKey.OFFSET_COMMIT, version, body, OffsetCommitResponse)
    return [each.error_code for topic in answer.topics for each in topic.partitions]


def fetch(
    world: World, node_id: int, group_id: str, topic: str | None = None, partitions: list[int] | None = None
) -> OffsetFetchResponseGroup:
    """Fetch the offsets of one topic, or of all."""
    topics = (
        None if topic is None else [OffsetFetchRequestTopic(name=topic, partition_indexes=partitions or [0])]
    )
    body = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group_id, topics=topics)])
    return ask(world, node_id, ApiKey.OFFSET_FETCH, 8, body, OffsetFetchResponse).groups[0]


def committed(world: World, node_id: int, group_id: str) -> dict[tuple[str, int], int]:
    """All committed offsets of a group."""
    group = fetch(world, node_id, group_id)
    assert group.error_code == ErrorCode.NONE
    return {
        (topic.name, each.partition_index): each.committed_offset
        for topic in group.topics
        for each in topic.partitions
    }
