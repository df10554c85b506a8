"""Leader epochs as clients see them. The first epoch of a partition is 0, as in Kafka, and no stale leader tells a
client that its position is invalid."""

from __future__ import annotations

from uuid import UUID

import pytest

from broker.replication import log_opener
from broker.replication.ranges import check_range
from protocol import peer
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from protocol.records.batch import iter_batches
from protocol.records.builder import NewRecord, build_batch
from raft.types import FOUNDING_TERM
from tests.broker.asking import ask
from tests.broker.world import World, running

UNKNOWN = (ErrorCode.NONE, -1, -1)


def shown_epochs(world: World, node_id: int, name: str = "foo") -> list[int]:
    """The leader epoch of each partition, from Metadata."""
    body = MetadataRequest(topics=[MetadataRequestTopic(name=name)])
    answer = ask(world, node_id, ApiKey.METADATA, 9, body, MetadataResponse)
    return [partition.leader_epoch for partition in answer.topics[0].partitions]


def listed_epoch(world: World, node_id: int, timestamp: int) -> int:
    wanted = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    body = ListOffsetsRequest(topics=[ListOffsetsTopic(name="foo", partitions=[wanted])])
    answer = ask(world, node_id, ApiKey.LIST_OFFSETS, 7, body, ListOffsetsResponse)
    found = answer.topics[0].partitions[0]
    assert found.error_code == ErrorCode.NONE
    return found.leader_epoch


def fetch(world: World, node_id: int, current_leader_epoch: int = -1) -> PartitionData:
    wanted = FetchPartition(
        partition=0,
        fetch_offset=0,
        partition_max_bytes=1 << 20,
        current_leader_epoch=current_leader_epoch,
    )
    body = FetchRequest(
        max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, topics=[FetchTopic(topic="foo", partitions=[wanted])]
    )
    return ask(world, node_id, ApiKey.FETCH, 11, body, FetchResponse).responses[0].partitions[0]


def fetched_epochs(world: World, node_id: int) -> list[int]:
    """The leader epoch of each batch."""
    records = fetch(world, node_id).records
    assert isinstance(records, memoryview)
    return [header.leader_epoch for _, header in iter_batches(records)]


def epoch_end(world: World, node_id: int, leader_epoch: int) -> EpochEndOffset:
    current = world.replica(node_id, "foo").leader_epoch
    wanted = OffsetForLeaderPartition(partition=0, current_leader_epoch=current, leader_epoch=leader_epoch)
    body = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic="foo", partitions=[wanted])])
    answer = ask(world, node_id, ApiKey.OFFSET_FOR_LEADER_EPOCH, 3, body, OffsetForLeaderEpochResponse)
    return answer.topics[0].partitions[0]


def test_a_leader_that_is_cut_off_does_not_deny_the_epoch_of_its_successor() -> None:
    with running() as world:
        world.create_topic("foo")
        world.produce("foo", b"a")
        old = world.leader("foo")
        others = [node_id for node_id in world.ids if node_id != old]
        world.network.partition([f"n{old}"], [f"n{other}" for other in others])
        world.wait(lambda: any(world.replica(other, "foo").is_serving for other in others))
        assert world.replica(old, "foo").is_serving, "it does not know its successor yet"
        (successor,) = [other for other in others if world.replica(other, "foo").is_serving]
        epoch = world.replica(successor, "foo").leader_epoch
        assert epoch_end(world, old, epoch).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        end = epoch_end(world, successor, epoch)
        assert (end.error_code, end.leader_epoch, end.end_offset) == (ErrorCode.NONE, epoch, 1)


def ended(world: World, node_id: int, leader_epoch: int) -> tuple[int, int, int]:
    end = epoch_end(world, node_id, leader_epoch)
    return end.error_code, end.leader_epoch, end.end_offset


def test_a_new_partition_is_led_in_epoch_0() -> None:
    with running() as world:
        world.create_topic("foo")
        world.produce("foo", b"a")
        leader = world.leader("foo")
        assert shown_epochs(world, leader) == [0]
        assert [listed_epoch(world, leader, timestamp) for timestamp in (-1, -2, -3, 0)] == [0, 0, 0, 0]
        assert fetched_epochs(world, leader) == [0]
        assert ended(world, leader, 0) == (ErrorCode.NONE, 0, 1)


def test_all_partitions_of_a_large_topic_are_led_in_epoch_0() -> None:
    """Each partition has its leader after one election."""
    with running() as world:
        world.create_topic("foo", partitions=60)
        leaders = [world.leader("foo", partition) for partition in range(60)]
        world.loop.run_for(1)  # until every node knows all leaders
        for node_id in world.ids:
            assert shown_epochs(world, node_id) == [0] * 60
        assert {leaders.count(node_id) for node_id in world.ids} == {20}, "the first replica of each"


def test_the_epoch_of_a_reader_is_checked_from_epoch_0_on() -> None:
    with running() as world:
        world.create_topic("foo")
        world.produce("foo", b"a")
        old = world.leader("foo")
        codes = [fetch(world, old, epoch).error_code for epoch in (-1, 0, 1)]
        assert codes == [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.UNKNOWN_LEADER_EPOCH]
        new = 1 + old % 3
        target = world.replica(new, "foo").group.self_id
        assert world.processes[old].call(world.replica(old, "foo").driver.transfer_leadership, target)
        world.wait(lambda: world.replica(new, "foo").is_serving)
        codes = [fetch(world, new, epoch).error_code for epoch in (-1, 0, 1)]
        assert codes == [ErrorCode.NONE, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NONE]
        assert ended(world, new, 0) == (ErrorCode.NONE, 0, 1)


@pytest.mark.parametrize("epoch", [-1, -2, -(2**31)])
def test_a_negative_epoch_is_unknown(epoch: int) -> None:
    """The founding row of a group has a term below 0, which clients never see."""
    with running() as world:
        world.create_topic("foo")
        world.produce("foo", b"a")
        assert ended(world, world.leader("foo"), epoch) == UNKNOWN


def test_a_directory_that_was_founded_in_term_0_opens_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """In directories of older builds the founding row has term 0, and the first leader term 1."""
    with running() as world:
        monkeypatch.setattr(log_opener, "FOUNDING_TERM", 0)
        world.create_topic("foo")
        world.produce("foo", b"a")
        world.wait_equal("foo")
        assert [row.term for row in world.replica(1, "foo").log.lineage.rows] == [0, 1]
        monkeypatch.undo()
        for node_id in world.ids:
            world.kill(node_id, power=True)
        world.start_all()
        leader = world.leader("foo")
        world.produce("foo", b"b")
        assert fetched_epochs(world, leader) == [1, 2]
        assert [listed_epoch(world, leader, timestamp) for timestamp in (-1, -2)] == [2, 1]
        assert ended(world, leader, 1) == (ErrorCode.NONE, 1, 1)
        assert ended(world, leader, -1) == UNKNOWN
        world.create_topic("bar")
        world.leader("bar")
        assert shown_epochs(world, world.leader("bar"), "bar") == [0]


def test_a_range_of_batches_without_a_leader_epoch_is_refused() -> None:
    """The epoch of the batches is -1, as in a client's request, and so is the term before the range."""
    records = build_batch([NewRecord(None, b"a", 0)], leader_epoch=-1)
    message = peer.Append(
        topic_id=UUID(int=1),
        partition=0,
        incarnation=0,
        follower_incarnation=0,
        term=0,
        start_index=1,
        prev_term=FOUNDING_TERM,
        to_index=2,
        commit_end=0,
        log_start=0,
        start_offset=0,
        records=memoryview(records),
    )
    with pytest.raises(KafkaError, match="nobody leads"):
        check_range(message)
