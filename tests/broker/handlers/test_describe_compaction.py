"""DescribeCompaction: what a replica says of itself, and what a leader says of the members."""

from __future__ import annotations

from broker.replication.watermarks.blocked_by import BlockedBy
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.describe_compaction import (
    CompactionMember,
    DescribeCompactionRequest,
    DescribeCompactionResponse,
    DescribeCompactionTopic,
    PartitionCompaction,
)
from tests.broker.asking import ask, until
from tests.broker.compacting import create, pass_over, write
from tests.broker.world import World, running


def describe(world: World, node_id: int = 1, topic: str = "table", partition: int = 0) -> PartitionCompaction:
    named = [DescribeCompactionTopic(name=topic, partition_indexes=[partition])]
    request = DescribeCompactionRequest(topics=named)
    answer = ask(world, node_id, ApiKey.DESCRIBE_COMPACTION, 0, request, DescribeCompactionResponse)
    return answer.topics[0].partitions[0]


def test_a_log_before_and_after_its_first_pass() -> None:
    with running() as world:
        create(world)
        write(world, "table")
        before = describe(world)
        assert (before.blocked_by, before.limit) == (BlockedBy.ACTIVE_SEGMENT, BlockedBy.ACTIVE_SEGMENT)
        assert (before.max_cleanly_compacted_offset, before.last_compacted_ms) == (-1, -1)
        assert (before.tombstones.count, before.records_before) == (-1, -1)
        pass_over(world)
        until(world, lambda: describe(world).max_tombstone_remove_offset == 20)
        after = describe(world)
        assert (after.blocked_by, after.dirty_bytes) == (BlockedBy.NOTHING_DIRTY, 0)
        assert (after.max_cleanly_compacted_offset, after.max_transaction_free_offset) == (20, 20)
        assert (after.records_before, after.records_after) == (20, 1)
        assert (after.tombstones.count, after.markers.count) == (0, 0)
        assert 0 <= world.nodes[1].replicas.now_ms() - after.last_compacted_ms < 60_000


def test_the_time_of_the_last_pass_outlives_a_restart() -> None:
    with running() as world:
        create(world)
        write(world, "table")
        pass_over(world)
        at_ms = describe(world).last_compacted_ms
        world.stop(1)
        world.start(1)
        world.wait_ready(1)
        world.leader("table")
        assert describe(world).last_compacted_ms == at_ms > 0


def test_the_dirty_ratio_and_the_lag_are_in_the_way() -> None:
    with running() as world:
        create(world, min_compaction_lag_ms="600000", min_cleanable_dirty_ratio="1.0")
        write(world, "table")
        world.replica(1, "table").log.roll()
        until(world, lambda: describe(world).blocked_by == BlockedBy.MIN_LAG)
        world.loop.run_for(601)
        lately = describe(world)
        assert lately.blocked_by == BlockedBy.DIRTY_RATIO
        assert lately.dirty_bytes > lately.clean_bytes == 0


def test_a_topic_without_compaction_says_so() -> None:
    with running() as world:
        world.create_topic("table")
        assert describe(world).blocked_by == BlockedBy.POLICY


def test_a_cleaner_that_is_off() -> None:
    with running(settings={"log.cleaner.enable": "false"}) as world:
        create(world)
        assert describe(world).blocked_by == BlockedBy.CLEANER_OFF


def test_a_pass_that_failed_tells_why_and_when_it_is_tried_again() -> None:
    with running(settings={"varve.compaction.initial.delay.ms": "1000"}) as world:
        create(world, min_cleanable_dirty_ratio="0.01")
        write(world, "table")
        world.replica(1, "table").log.roll()
        disk = world.disks[1]
        disk.faults.capacity_bytes -= disk.free_bytes()
        until(world, lambda: bool(describe(world).failure))
        failed = describe(world)
        assert failed.blocked_by == BlockedBy.FAILED
        assert failed.retry_at_ms > world.nodes[1].replicas.now_ms()


def members(world: World, leader: int) -> dict[int, CompactionMember]:
    return {member.node_id: member for member in describe(world, leader).members}


def test_the_leader_tells_who_keeps_tombstones_from_going_why_and_since_when() -> None:
    with running(size=3) as world:
        create(world, replication_factor=3)
        write(world, "table")
        leader = world.leader("table")
        away = next(node_id for node_id in world.nodes if node_id != leader)
        there = [node_id for node_id in world.nodes if node_id != away]
        world.kill(away)
        until(world, lambda: members(world, leader)[away].blocked_by == BlockedBy.OFFLINE)
        began_ms = world.nodes[leader].replicas.now_ms()
        for node_id in there:
            pass_over(world, node_id)
        until(world, lambda: members(world, leader)[there[1]].max_cleanly_compacted_offset == 20)
        until(world, lambda: members(world, leader)[away].pins_tombstones_since_ms > 0)
        seen = members(world, leader)
        assert began_ms - 60_000 < seen[away].pins_tombstones_since_ms
        assert [seen[node_id].pins_tombstones_since_ms for node_id in there] == [-1, -1]
        assert describe(world, leader).max_tombstone_remove_offset == -1
        world.start(away)
        until(world, lambda: members(world, leader)[away].blocked_by == BlockedBy.ACTIVE_SEGMENT)
        pass_over(world, away)
        until(world, lambda: members(world, leader)[away].pins_tombstones_since_ms == -1)
        until(world, lambda: describe(world, leader).max_tombstone_remove_offset == 20)


def test_a_follower_tells_of_itself_alone() -> None:
    with running(size=3) as world:
        create(world, replication_factor=3)
        leader = world.leader("table")
        follower = next(node_id for node_id in world.nodes if node_id != leader)
        assert not describe(world, follower).members
        assert describe(world, follower).error_code == ErrorCode.NONE


def test_refusals() -> None:
    with running() as world:
        create(world)
        assert describe(world, topic="none").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert describe(world, partition=1).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert describe(world, topic="no/name").error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
