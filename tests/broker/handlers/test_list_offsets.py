"""ListOffsets: the special timestamps, and a leader that does not know its high watermark yet."""

from __future__ import annotations

import pytest

from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from protocol.records.batch import iter_batches
from protocol.records.builder import NewRecord, build_batch
from tests.broker.asking import ask
from tests.broker.world import World, running


@pytest.mark.parametrize(
    ("version", "expected"), [(4, ErrorCode.LEADER_NOT_AVAILABLE), (5, ErrorCode.OFFSET_NOT_AVAILABLE)]
)
def test_a_leader_that_is_not_established_has_the_client_ask_again(version: int, expected: ErrorCode) -> None:
    with running() as world:
        world.create_topic("foo")
        world.produce("foo", b"a")
        world.wait_equal("foo")
        world.kill(world.leader("foo"))
        winners: list[int] = []

        def is_elected() -> bool:
            winners[:] = [x for x in world.nodes if world.replica(x, "foo").is_leader]
            return bool(winners)

        world.wait(is_elected)
        (winner,) = winners
        for other in world.nodes:
            if other != winner:
                world.network.cut(f"n{winner}", f"n{other}")
        assert not world.replica(winner, "foo").is_serving
        wanted = ListOffsetsPartition(partition_index=0, timestamp=-1)
        body = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="foo", partitions=[wanted])])
        answer = ask(world, winner, ApiKey.LIST_OFFSETS, version, body, ListOffsetsResponse)
        assert answer.topics[0].partitions[0].error_code == expected


#: Three batches of records with these times; the answers are those of Apache Kafka 4.3 to the same requests.
TIMES_MS = ((1000, 1005, 1003), (1010, 1015, 1013), (1020, 1025, 1023))
NOTHING = (ErrorCode.NONE, -1, -1, -1)
UNSUPPORTED = (ErrorCode.UNSUPPORTED_VERSION, -1, -1, -1)


def list_offset(
    world: World, node_id: int, timestamp: int, version: int = 10, *, partition: int = 0, epoch: int = -1
) -> tuple[ErrorCode, int, int, int]:
    """(error, timestamp, offset, leader epoch)."""
    wanted = ListOffsetsPartition(partition_index=partition, timestamp=timestamp, current_leader_epoch=epoch)
    body = ListOffsetsRequest(topics=[ListOffsetsTopic(name="foo", partitions=[wanted])])
    answer = ask(world, node_id, ApiKey.LIST_OFFSETS, version, body, ListOffsetsResponse)
    found = answer.topics[0].partitions[0]
    return ErrorCode(found.error_code), found.timestamp, found.offset, found.leader_epoch


def with_three_batches(world: World, start: int) -> int:
    """Creates topic "foo", deletes its records below `start`, and returns its leader."""
    world.create_topic("foo", configs={"message.timestamp.before.max.ms": str((1 << 63) - 1)})
    leader = world.leader("foo")
    replica = world.replica(leader, "foo")
    for times_ms in TIMES_MS:
        batch = build_batch([NewRecord(None, b"v", time_ms) for time_ms in times_ms])
        header = next(iter_batches(memoryview(batch)))[1]
        world.processes[leader].call(replica.append, header, batch)
    world.wait(lambda: replica.high_watermark == 9)
    world.processes[leader].call(replica.log_start.delete_records, start)
    world.wait(lambda: replica.log_start_offset == start)
    return leader


@pytest.mark.parametrize(
    ("timestamp", "since", "expected"),
    [
        (-1, 1, (ErrorCode.NONE, -1, 9, 0)),
        (-2, 1, (ErrorCode.NONE, -1, 4, 0)),
        (-3, 7, (ErrorCode.NONE, 1025, 7, 0)),
        (-4, 8, (ErrorCode.NONE, -1, 4, 0)),
        (-5, 9, NOTHING),
        (-6, 11, NOTHING),
        (-7, 99, UNSUPPORTED),
        (0, 1, (ErrorCode.NONE, 1015, 4, 0)),
        (1014, 1, (ErrorCode.NONE, 1015, 4, 0)),
        (1016, 1, (ErrorCode.NONE, 1020, 6, 0)),
        (1021, 1, (ErrorCode.NONE, 1025, 7, 0)),
        (9999, 1, NOTHING),
    ],
)
def test_special_and_other_timestamps(
    timestamp: int, since: int, expected: tuple[ErrorCode, int, int, int]
) -> None:
    with running() as world:
        leader = with_three_batches(world, start=4)
        for version in range(1, 12):
            wanted = UNSUPPORTED if version < since else expected
            if version < 4:
                wanted = (*wanted[:3], -1)
            assert list_offset(world, leader, timestamp, version) == wanted, version


def test_the_largest_timestamp_is_that_of_a_record_above_the_log_start() -> None:
    """The log start may lie above the latest record of a batch. Kafka answers the deleted record in that case."""
    with running() as world:
        leader = with_three_batches(world, start=8)
        assert list_offset(world, leader, -3) == (ErrorCode.NONE, 1023, 8, 0)
        assert list_offset(world, leader, 1024) == NOTHING
        replica = world.replica(leader, "foo")
        world.processes[leader].call(replica.log_start.delete_records, 9)
        world.wait(lambda: replica.log_start_offset == 9)
        assert list_offset(world, leader, -3) == list_offset(world, leader, 0) == NOTHING


def test_the_leader_and_its_epoch_are_checked() -> None:
    with running() as world:
        first = with_three_batches(world, start=0)
        leader = 1 + first % 3
        target = world.replica(leader, "foo").group.self_id
        assert world.processes[first].call(world.replica(first, "foo").driver.transfer_leadership, target)
        world.wait(lambda: world.replica(leader, "foo").is_serving)
        term = world.replica(leader, "foo").leader_epoch
        assert term == 1
        assert list_offset(world, first, -1)[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert list_offset(world, leader, -1, partition=9)[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert list_offset(world, leader, -1, epoch=term)[0] == ErrorCode.NONE
        assert list_offset(world, leader, -1, epoch=term - 1)[0] == ErrorCode.FENCED_LEADER_EPOCH
        assert list_offset(world, leader, -1, epoch=term + 1)[0] == ErrorCode.UNKNOWN_LEADER_EPOCH
