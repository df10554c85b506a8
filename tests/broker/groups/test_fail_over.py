"""Committed offsets through fail-overs, lost leadership, restarts of the whole cluster, and a full disk."""

from __future__ import annotations

from typing import Any

import pytest

from broker.coordinator.internal_topic import partition_of
from broker.coordinator.loading import RECORDS_PER_STEP, load
from broker.groups.commit import CommitAnswer
from broker.groups.records import GROUP_RECORDS, GroupRecord
from broker.groups.shard import Shard
from broker.replication.replicas import QUIET_S
from broker.scheduling import background
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.group_records import OffsetCommitKey
from protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from protocol.messages.offset_commit import OffsetCommitResponse
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchResponse
from protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from tests.broker.asking import ask, begin_ask
from tests.broker.groups.world import FEW, commit, commit_request, committed, coordinator, fetch
from tests.broker.world import World, running


def isolate(world: World, node_id: int) -> list[int]:
    """Cut a node off from the other nodes. Clients still reach it. Returns the other nodes."""
    others = [other for other in world.nodes if other != node_id]
    for other in others:
        world.network.cut(f"n{node_id}", f"n{other}")
        world.network.cut(f"n{other}", f"n{node_id}")
    return others


def coordinator_among(world: World, node_ids: list[int], group_id: str) -> int:
    found: list[int] = []

    def look() -> bool:
        found[:] = [x for x in node_ids if fetch(world, x, group_id).error_code == ErrorCode.NONE]
        return bool(found)

    for _ in range(100):
        if look():
            return found[0]
        world.loop.run_for(0.1)
    raise AssertionError("nobody took over")


def test_offsets_survive_the_coordinator() -> None:
    with running(settings=FEW) as world:
        world.create_topic("foo")
        node_id = coordinator(world, "g")
        assert commit(world, node_id, commit_request("g", "foo", {0: 1})) == [0]
        assert commit(world, node_id, commit_request("g", "foo", {0: 2})) == [0]
        world.kill(node_id, power=True)
        successor = coordinator(world, "g")
        assert successor != node_id
        assert committed(world, successor, "g") == {("foo", 0): 2}


def test_offsets_survive_a_power_loss_of_all_nodes() -> None:
    with running(settings=FEW) as world:
        world.create_topic("foo")
        assert commit(world, coordinator(world, "g"), commit_request("g", "foo", {0: 3})) == [0]
        for node_id in list(world.nodes):
            world.kill(node_id, power=True)
        world.start_all()
        assert committed(world, coordinator(world, "g"), "g") == {("foo", 0): 3}


def test_groups_need_only_a_majority_whatever_min_insync_replicas_is() -> None:
    """min.insync.replicas of the nodes is meant for produced records. With it, every heartbeat would wait for the node
    that is down."""
    with running(settings={**FEW, "min.insync.replicas": "3"}) as world:
        world.create_topic("foo")
        coordinator(world, "g")
        world.kill(next(iter(world.nodes)))
        node_id = coordinator(world, "g")
        assert commit(world, node_id, commit_request("g", "foo", {0: 1})) == [0]
        assert committed(world, node_id, "g") == {("foo", 0): 1}


def test_a_commit_under_way_when_leadership_is_lost_is_not_acknowledged() -> None:
    with running(settings=FEW) as world:
        world.create_topic("foo")
        old = coordinator(world, "g")
        assert commit(world, old, commit_request("g", "foo", {0: 1})) == [0]
        others = isolate(world, old)
        body = commit_request("g", "foo", {0: 2})
        under_way = begin_ask(world, old, ApiKey.OFFSET_COMMIT, 9, body, OffsetCommitResponse)
        world.loop.run_for(0.05)
        assert not under_way.done(), "nothing is acknowledged without a majority"
        world.wait(under_way.done)
        assert under_way.result().topics[0].partitions[0].error_code == ErrorCode.NOT_COORDINATOR
        successor = coordinator_among(world, others, "g")
        assert committed(world, successor, "g") == {("foo", 0): 1}


def test_a_stale_coordinator_answers_no_fetch() -> None:
    """It is deposed and does not know it yet. Its shard may be behind."""
    with running(settings=FEW) as world:
        world.create_topic("foo")
        old = coordinator(world, "g")
        assert commit(world, old, commit_request("g", "foo", {0: 1})) == [0]
        isolate(world, old)
        body = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g")])
        under_way = begin_ask(world, old, ApiKey.OFFSET_FETCH, 8, body, OffsetFetchResponse)
        world.loop.run_for(0.5)
        assert world.replica(old, "__consumer_offsets", partition_of("g", 3)).is_serving
        assert not under_way.done()
        world.wait(under_way.done)
        assert under_way.result().groups[0].error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_a_stale_coordinator_does_not_say_that_a_group_is_unknown() -> None:
    with running(settings=FEW) as world:
        old = coordinator(world, "g")
        isolate(world, old)
        body = DeleteGroupsRequest(groups_names=["g"])
        under_way = begin_ask(world, old, ApiKey.DELETE_GROUPS, 2, body, DeleteGroupsResponse)
        world.wait(under_way.done)
        assert under_way.result().results[0].error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_what_is_fetched_is_committed() -> None:
    """A commit that is replayed and not yet on a majority is not shown to anybody."""
    with running(settings=FEW) as world:
        world.create_topic("foo")
        node_id = coordinator(world, "g")
        assert commit(world, node_id, commit_request("g", "foo", {0: 1})) == [0]
        node = world.nodes[node_id]
        replica = world.replica(node_id, "__consumer_offsets", partition_of("g", 3))
        seen: list[tuple[int, int]] = []

        reading = node.coordinators.groups.reading()

        def look() -> None:
            offset = next(reading.shard("g").offsets.of_group("g"))[1].offset
            reading.wait(lambda: seen.append((offset, replica.high_watermark)))

        body = commit_request("g", "foo", {0: 2})
        under_way = begin_ask(world, node_id, ApiKey.OFFSET_COMMIT, 9, body, OffsetCommitResponse)
        world.wait(lambda: replica.next_offset == 2)
        assert replica.high_watermark == 1
        world.processes[node_id].call(reading.add, "g")
        world.processes[node_id].call(reading.confirm, look)
        world.wait(lambda: bool(seen))
        assert seen == [(2, 2)]
        assert under_way.done() or replica.high_watermark == 2


def test_a_commit_that_a_full_disk_refused_is_not_there_later() -> None:
    with running(size=1, settings=FEW) as world:
        world.create_topic("foo", 100, replication_factor=1)
        coordinator(world, "g")
        assert commit(world, 1, commit_request("g", "foo", {0: 1})) == [0]
        # Wait until no log has padding any more, because new records would fit into it.
        world.loop.run_for(3 * QUIET_S)
        disk = world.disks[1]
        room = disk.faults.capacity_bytes
        disk.faults.capacity_bytes = room - disk.free_bytes()
        refused = commit(world, 1, commit_request("g", "foo", dict.fromkeys(range(100), 2)))
        assert set(refused) == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
        assert committed(world, 1, "g") == {("foo", 0): 1}
        disk.faults.capacity_bytes = room
        world.wait(lambda: not world.nodes[1].replicas.space.is_low)
        assert commit(world, 1, commit_request("g", "foo", {0: 3})) == [0]
        assert committed(world, 1, "g") == {("foo", 0): 3}


def test_a_long_log_is_loaded_in_slices_and_requests_are_told_to_wait() -> None:
    with running(size=1, settings=FEW) as world:
        world.create_topic("foo", 100, replication_factor=1)
        coordinator(world, "g")
        commits = 30
        for offset in range(commits):
            body = commit_request("g", "foo", dict.fromkeys(range(100), offset))
            assert set(commit(world, 1, body)) == {0}
        node = world.nodes[1]
        replica = world.replica(1, "__consumer_offsets", partition_of("g", 3))
        shard = Shard(node.config, node.metadata.image, node._rng, 1 << 20)
        steps = len(list(load(replica, GROUP_RECORDS, shard)))
        assert steps == commits * 100 // RECORDS_PER_STEP + 100, "the newest offset of each partition counts"
        assert {value.offset for _, value in shard.offsets.of_group("g")} == {commits - 1}

        answers: list[CommitAnswer] = []

        def decide(*_: Any) -> Any:
            raise AssertionError("nothing is decided while loading")

        def load_anew() -> None:
            node.coordinators.groups.reload_shard(node.coordinators.groups._led[replica.partition])
            node.coordinators.groups.ask("g", answers.append, lambda error: CommitAnswer(error, []), decide)

        world.processes[1].call(load_anew)
        assert [answer.error for answer in answers] == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
        world.loop.run_for(0.1)
        assert set(committed(world, 1, "g").values()) == {commits - 1}


def test_members_of_a_group_that_is_being_loaded_are_told_what_their_clients_expect(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of COORDINATOR_LOAD_IN_PROGRESS, aiokafka's heartbeats, Java's joins and its old producers know nothing, and
    end."""
    monkeypatch.setattr(background, "PIECE_S", 0.0)
    with running(size=1, settings=FEW) as world:
        world.create_topic("foo", 100, replication_factor=1)
        coordinator(world, "g")
        assert set(commit(world, 1, commit_request("g", "foo", dict.fromkeys(range(100), 1)))) == {0}
        groups = world.nodes[1].coordinators.groups
        beat = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
        sync = SyncGroupRequest(group_id="g", generation_id=1, member_id="m", assignments=[])

        def answers() -> list[int]:
            return [
                ask(world, 1, ApiKey.HEARTBEAT, 3, beat, HeartbeatResponse).error_code,
                ask(world, 1, ApiKey.SYNC_GROUP, 3, sync, SyncGroupResponse).error_code,
            ]

        def load_anew() -> None:
            world.processes[1].call(groups.reload_shard, groups._led[partition_of("g", 3)])

        def committing(version: int) -> int:
            load_anew()
            offset = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=2)
            body = TxnOffsetCommitRequest(
                transactional_id="t",
                group_id="g",
                producer_id=1,
                producer_epoch=0,
                topics=[TxnOffsetCommitRequestTopic(name="foo", partitions=[offset])],
            )
            answer = ask(world, 1, ApiKey.TXN_OFFSET_COMMIT, version, body, TxnOffsetCommitResponse)
            return answer.topics[0].partitions[0].error_code

        load_anew()
        assert answers() == [ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS]
        assert committing(1) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert committing(2) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        world.loop.run_for(1.0)
        assert answers() == [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.UNKNOWN_MEMBER_ID]


def test_records_are_loaded_in_the_order_of_the_log_without_what_was_overwritten() -> None:
    class Recorder:
        def __init__(self) -> None:
            self.partitions: list[int] = []

        def replay(self, record: GroupRecord) -> None:
            assert isinstance(record.key, OffsetCommitKey)
            self.partitions.append(record.key.partition)

        def replay_pending(self, producer_id: int, record: GroupRecord) -> None:
            raise AssertionError("nothing is written in a transaction")

    with running(size=1, settings=FEW) as world:
        world.create_topic("foo", 3, replication_factor=1)
        coordinator(world, "g")
        for partition in (0, 1, 2, 0):
            assert commit(world, 1, commit_request("g", "foo", {partition: 1})) == [0]
        recorder = Recorder()
        replica = world.replica(1, "__consumer_offsets", partition_of("g", 3))
        list(load(replica, GROUP_RECORDS, recorder))
        assert recorder.partitions == [1, 2, 0]
