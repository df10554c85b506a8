"""DeleteRecords as clients see it; codes and low watermarks are what Apache Kafka 4.3 answered to the same requests."""

from __future__ import annotations

import pytest

from broker.replication.replicas import APPEND_BATCH_S
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from protocol.records.batch import iter_batches
from storage.segment_files import LOG_SUFFIX
from tests.broker.asking import ask
from tests.broker.world import World, running
from tests.simulator.inode import FileNode

NONE, OUT_OF_RANGE = ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE
EARLIEST = -2


def delete(
    world: World,
    node_id: int,
    topic: str,
    *offsets: int,
    partition: int = 0,
    timeout_ms: int = 5000,
    version: int = 2,
) -> list[tuple[ErrorCode, int]]:
    """(error, low watermark) of each partition in the answer."""
    wanted = [DeleteRecordsPartition(partition_index=partition, offset=offset) for offset in offsets]
    body = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=topic, partitions=wanted)], timeout_ms=timeout_ms
    )
    answer = ask(world, node_id, ApiKey.DELETE_RECORDS, version, body, DeleteRecordsResponse)
    return [(ErrorCode(x.error_code), x.low_watermark) for x in answer.topics[0].partitions]


def earliest(world: World, node_id: int, topic: str) -> tuple[ErrorCode, int]:
    """As soon as this leader knows."""
    wanted = [ListOffsetsPartition(partition_index=0, timestamp=EARLIEST)]
    body = ListOffsetsRequest(topics=[ListOffsetsTopic(name=topic, partitions=wanted)])
    while True:
        answer = ask(world, node_id, ApiKey.LIST_OFFSETS, 7, body, ListOffsetsResponse)
        found = answer.topics[0].partitions[0]
        if found.error_code != ErrorCode.NOT_LEADER_OR_FOLLOWER:
            return ErrorCode(found.error_code), found.offset


def fetch(world: World, node_id: int, topic: str, offset: int) -> tuple[ErrorCode, int, list[int]]:
    """(error, log start, base offsets of the batches)."""
    wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    body = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[FetchTopic(topic=topic, partitions=[wanted])])
    data = ask(world, node_id, ApiKey.FETCH, 12, body, FetchResponse).responses[0].partitions[0]
    records = memoryview(bytes(data.records or b""))  # type: ignore[arg-type]
    bases = [header.base_offset for _, header in iter_batches(records)]
    return ErrorCode(data.error_code), data.log_start_offset, bases


def size_of(world: World, node_id: int, topic: str) -> int:
    body = DescribeLogDirsRequest(topics=[DescribableLogDirTopic(topic=topic, partitions=[0])])
    answer = ask(world, node_id, ApiKey.DESCRIBE_LOG_DIRS, 4, body, DescribeLogDirsResponse)
    (result,) = answer.results
    assert (result.error_code, result.log_dir) == (NONE, f"/n{node_id}")
    assert 0 < result.usable_bytes <= result.total_bytes
    return result.topics[0].partitions[0].partition_size


def with_three_batches_of_four(world: World, **configs: str) -> int:
    """Creates topic "foo", and returns its leader."""
    world.create_topic("foo", configs=configs)
    for _ in range(3):
        world.produce("foo", b"a", b"b", b"c", b"d")
    return world.leader("foo")


def test_offsets_and_what_is_answered() -> None:
    with running() as world:
        leader = with_three_batches_of_four(world)
        assert delete(world, leader, "foo", 13) == [(OUT_OF_RANGE, -1)]
        assert delete(world, leader, "foo", -2) == [(OUT_OF_RANGE, -1)]
        assert delete(world, leader, "foo", 0) == [(NONE, 0)]
        assert delete(world, leader, "foo", 5) == [(NONE, 5)]
        assert delete(world, leader, "foo", 5) == delete(world, leader, "foo", 2) == [(NONE, 5)]
        assert delete(world, leader, "foo", 6, version=0) == [(NONE, 6)]
        assert delete(world, leader, "foo", 8, 7) == [(NONE, 7)]
        assert earliest(world, leader, "foo") == (NONE, 7)
        assert fetch(world, leader, "foo", 6)[0] == OUT_OF_RANGE
        assert fetch(world, leader, "foo", 7) == (NONE, 7, [4, 8]), (
            "whole batches: the client skips the records below"
        )
        assert delete(world, leader, "foo", -1) == [(NONE, 12)]
        assert fetch(world, leader, "foo", 12) == (NONE, 12, [])
        assert world.produce("foo", b"e") == 12
        assert fetch(world, leader, "foo", 12) == (NONE, 12, [12])


def test_brokers_and_topics_that_cannot_be_asked() -> None:
    with running() as world:
        leader = with_three_batches_of_four(world)
        follower = 1 + leader % 3
        assert delete(world, follower, "foo", 6) == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)]
        unknown = [(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)]
        assert delete(world, leader, "bar", 0) == delete(world, leader, "a/b", 0) == unknown
        assert delete(world, leader, "foo", 0, partition=7) == unknown
        assert delete(world, leader, "foo", 0, partition=-1) == unknown
        assert delete(world, leader, "__consumer_offsets", 0) == [(ErrorCode.INVALID_TOPIC_EXCEPTION, -1)]
        assert delete(world, leader, "foo") == []


@pytest.mark.parametrize(
    ("policy", "code"), [("compact", ErrorCode.POLICY_VIOLATION), ("compact,delete", ErrorCode.NONE)]
)
def test_only_topics_with_the_policy_delete(policy: str, code: ErrorCode) -> None:
    with running() as world:
        world.create_topic("foo", configs={"cleanup.policy": policy})
        leader = world.leader("foo")
        assert delete(world, leader, "foo", 0) == [(code, 0 if code == NONE else -1)]
        if code != NONE:
            assert delete(world, leader, "foo", 99) == [(code, -1)]
            assert delete(world, 1 + leader % 3, "foo", 0)[0][0] == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_an_answer_waits_for_a_majority_or_times_out() -> None:
    with running() as world:
        leader = with_three_batches_of_four(world)
        others = [node_id for node_id in world.ids if node_id != leader]
        world.wait_equal("foo")
        for node_id in others:
            world.loop.pause(world.processes[node_id])
        assert delete(world, leader, "foo", 5, timeout_ms=300) == [(ErrorCode.REQUEST_TIMED_OUT, 0)]
        assert world.replica(leader, "foo").log.start_offset == 5, "the deletion is done on its own disk"
        assert delete(world, leader, "foo", 5, timeout_ms=0) == [(ErrorCode.REQUEST_TIMED_OUT, 0)]
        world.loop.resume(world.processes[others[0]])
        assert delete(world, leader, "foo", 5) == [(NONE, 5)]
        world.loop.resume(world.processes[others[1]])
        world.wait(lambda: all(world.replica(x, "foo").log.start_offset == 5 for x in world.ids))


def test_a_leader_that_is_cut_off_answers_neither_success_nor_out_of_range() -> None:
    """Its successor may have the offset, and may not have the deletion."""
    with running() as world:
        leader = with_three_batches_of_four(world)
        assert delete(world, leader, "foo", 2) == [(NONE, 2)]
        world.wait_equal("foo")
        for node_id in world.ids:
            if node_id != leader:
                world.network.cut(f"n{leader}", f"n{node_id}")
                world.network.cut(f"n{node_id}", f"n{leader}")
        for offset in (13, 1, -1):
            assert delete(world, leader, "foo", offset)[0][0] == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_an_answered_deletion_survives_the_leader() -> None:
    with running() as world:
        leader = with_three_batches_of_four(world)
        assert delete(world, leader, "foo", 6) == [(NONE, 6)]
        world.kill(leader, power=True)
        assert earliest(world, world.leader("foo"), "foo") == (NONE, 6)


def test_a_deletion_of_only_a_deposed_leader_reaches_all_replicas_in_the_end() -> None:
    """The deletion was not acknowledged. But the deposed leader's copy cannot undo it, and replicas have to be
    equal."""
    with running() as world:
        leader = with_three_batches_of_four(world)
        world.wait_equal("foo")
        others = [node_id for node_id in world.ids if node_id != leader]
        for node_id in others:
            world.network.cut(f"n{leader}", f"n{node_id}")
            world.network.cut(f"n{node_id}", f"n{leader}")
        replica = world.replica(leader, "foo")
        world.processes[leader].call(replica.log_start.delete_records, 6)
        world.wait(lambda: replica.log.start_offset == 6)
        world.wait(lambda: any(world.replica(x, "foo").is_serving for x in others))
        successor = next(x for x in others if world.replica(x, "foo").is_serving)
        assert earliest(world, successor, "foo") == (NONE, 0)
        world.network.heal_all()
        world.wait(lambda: all(world.replica(x, "foo").log.start_offset == 6 for x in world.ids))
        assert earliest(world, world.leader("foo"), "foo") == (NONE, 6)


@pytest.mark.parametrize("end", ["stopped", "killed", "without power"])
def test_log_starts_survive_a_restart(end: str) -> None:
    with running() as world:
        leader = with_three_batches_of_four(world)
        assert delete(world, leader, "foo", 6) == [(NONE, 6)]
        world.wait(lambda: all(world.replica(x, "foo").log.start_offset == 6 for x in world.ids))
        for node_id in world.ids:
            world.stop(node_id) if end == "stopped" else world.kill(node_id, power=end == "without power")
        world.start_all()
        assert {world.replica(x, "foo").log.start_offset for x in world.ids} == {6}
        leader = world.leader("foo")
        assert earliest(world, leader, "foo") == (NONE, 6)
        assert fetch(world, leader, "foo", 6) == (NONE, 6, [4, 8])


def test_segments_are_deleted_on_every_replica() -> None:
    """Whole segments are deleted at once; an active segment without remaining records at the next retention check."""
    settings = {"log.segment.bytes": "1024", "log.retention.check.interval.ms": "5000"}
    with running(settings=settings) as world:
        world.create_topic("foo")
        for _ in range(20):
            world.produce("foo", b"x" * 300)
            world.loop.run_for(APPEND_BATCH_S)  # a range of batches lies in one segment
        world.wait_equal("foo")
        leader = world.leader("foo")
        before = {node_id: size_of(world, node_id, "foo") for node_id in world.ids}
        assert all(size > 6000 for size in before.values())
        assert delete(world, leader, "foo", -1) == [(NONE, 20)]
        world.loop.run_for(0.5)
        assert all(0 < size_of(world, x, "foo") < 1100 for x in world.ids)
        world.loop.run_for(5)
        assert all(size_of(world, x, "foo") == 0 for x in world.ids)
        for node_id in world.ids:
            folder = world.replica(node_id, "foo").log.directory
            names = [name for name in world.disks[node_id].list(folder) if name.endswith(LOG_SUFFIX)]
            assert names == [f"{20:020d}{LOG_SUFFIX}"]
        assert world.produce("foo", b"y") == 20
        assert fetch(world, world.leader("foo"), "foo", 20) == (NONE, 20, [20])


def test_a_follower_that_was_down_is_built_from_the_batches_that_are_left() -> None:
    """A log may start inside a batch. A replica gets whole batches, then the log start of the others."""
    with running(settings={"log.segment.bytes": "1024"}) as world:
        world.create_topic("foo")
        leader = world.leader("foo")
        away = 1 + leader % 3
        world.produce("foo", b"early")
        world.wait_equal("foo")
        world.kill(away)
        for _ in range(30):
            world.produce("foo", b"x" * 150, b"y" * 150, b"z" * 150)
        leader = world.leader("foo")
        assert delete(world, leader, "foo", 51) == [(NONE, 51)]
        assert world.replica(leader, "foo").log.first_stored_offset > 1
        world.start(away)
        world.wait_ready(away)
        world.wait(lambda: world.replica(away, "foo").log.start_offset == 51)
        world.wait_equal("foo")


def test_the_deletions_of_a_loop_iteration_share_a_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client may delete every 100 ms on hundreds of partitions (KIP-811)."""
    with running() as world:
        world.create_topic("foo", partitions=50)
        for index in range(50):
            world.produce("foo", b"a", b"b", partition=index)
        leader = world.leader("foo", 0)
        node = world.nodes[leader]
        led = [
            index
            for index in range(50)
            if world.replica(leader, "foo", index).is_serving
            and world.replica(leader, "foo", index).high_watermark == 2
        ]
        world.loop.run_for(1)
        before = node.journal.last_sequence
        flushed: list[str] = []
        flush_node = world.disks[leader].flush_node

        def count(node: FileNode, up_to_count: int, path: str) -> None:
            flushed.append(path)
            flush_node(node, up_to_count, path)

        monkeypatch.setattr(world.disks[leader], "flush_node", count)
        wanted = [DeleteRecordsPartition(partition_index=index, offset=-1) for index in led]
        body = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name="foo", partitions=wanted)], timeout_ms=5000
        )
        answer = ask(world, leader, ApiKey.DELETE_RECORDS, 2, body, DeleteRecordsResponse)
        assert {(x.error_code, x.low_watermark) for x in answer.topics[0].partitions} == {(NONE, 2)}
        assert len(led) > 10
        assert node.journal.last_sequence - before <= len(led) + 5
        assert len(flushed) <= 3, flushed


def test_a_follower_whose_last_answers_were_lost_in_its_crash_starts_again() -> None:
    """Its durable log start is above the offset where the leader, which lacks the last answers, goes on sending."""
    with running() as world:
        world.create_topic("foo")
        world.produce("foo", b"a")
        world.wait_equal("foo")
        leader = world.leader("foo")
        follower = 1 + leader % 3
        world.network.cut(f"n{follower}", f"n{leader}")
        end = 0
        for _ in range(4):
            end = world.produce("foo", b"b" * 600_000) + 1
        led = world.replica(leader, "foo")
        world.processes[leader].call(led.log_start.delete_records, end)
        world.wait(lambda: world.replica(follower, "foo").log.start_offset == end, 0.5)
        assert led.is_leader
        world.kill(follower, power=True)
        world.network.heal_all()
        world.start(follower)
        world.wait_ready(follower)
        world.produce("foo", b"c")
        world.wait_equal("foo")
        assert world.processes[follower].alive
