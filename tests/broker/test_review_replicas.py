"""Replicas: what a review found broken in them. Whoever mends one takes its mark away."""

from __future__ import annotations

import pytest

from broker.replica import Replica
from protocol import peer
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from protocol.records.batch import iter_batches
from protocol.records.builder import NewRecord, build_batch
from raft.types import ReplicaId
from storage.journal import Journal
from storage.journal_records import Forget
from storage.log_types import GroupKey
from tests.broker.asking import ask
from tests.broker.world import World, running


def _produce(world: World, node_id: int, name: str) -> int:
    """One record with acks=all, put to that node; its error code."""
    records = memoryview(build_batch([NewRecord(None, b"x", world.nodes[node_id].now_ms())]))
    data = [PartitionProduceData(index=0, records=records)]
    body = ProduceRequest(
        transactional_id=None,
        acks=-1,
        timeout_ms=1000,
        topic_data=[TopicProduceData(name=name, partition_data=data)],
    )
    answer = ask(world, node_id, ApiKey.PRODUCE, 9, body, ProduceResponse)
    return answer.responses[0].partition_responses[0].error_code


def test_a_replica_that_does_not_lead_says_so_whatever_min_insync_replicas_is() -> None:
    """Clients retry NOT_ENOUGH_REPLICAS at the same broker; only the other code makes them look for the leader."""
    with running(settings={"min.insync.replicas": "2"}) as world:
        world.create_topic("foo")
        follower = 1 + world.leader("foo") % 3
        assert _produce(world, follower, "foo") == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_records_that_were_deleted_do_not_come_back_with_the_next_leader() -> None:
    """The schedule of replication.md section 6: start raised on a and b; a dies; c, whose log is complete, leads."""
    settings = {
        "log.segment.bytes": "1024",
        "log.retention.bytes": "1",
        "log.retention.check.interval.ms": "1000000000",
    }
    with running(settings=settings) as world:
        world.create_topic("foo")
        for _ in range(10):
            world.produce("foo", b"a" * 400)
        world.wait_equal("foo")
        world.loop.run_for(1)
        a = world.leader("foo")
        b, c = (node_id for node_id in world.ids if node_id != a)
        world.kill(c)
        leader = world.replica(a, "foo")
        world.processes[a].call(leader.apply_retention)
        start = leader.log.start_offset
        assert start > 0
        world.wait(lambda: world.replica(b, "foo").log.start_offset == leader.log_start_offset == start)
        world.nodes[b].replicas.stop_campaigning()
        world.kill(a)
        world.start(c)
        world.wait_ready(c)
        world.wait(lambda: world.replica(c, "foo").is_serving)
        assert world.replica(c, "foo").log_start_offset == start


def test_a_leader_that_is_deposed_with_a_full_disk_tells_those_who_wait() -> None:
    with running() as world:
        world.create_topic("foo")
        leader = world.leader("foo")
        world.wait_equal("foo")
        for other in world.ids:
            if other != leader:
                world.network.cut(f"n{leader}", f"n{other}")
        node, replica, group = (
            world.nodes[leader],
            world.replica(leader, "foo"),
            world.replica(leader, "foo").group,
        )
        mine = build_batch([NewRecord(None, b"mine", node.now_ms())])
        header = next(iter_batches(memoryview(mine)))[1]
        answers: list[ErrorCode] = []

        class Waiter:
            def partition_done(self, slot: int, error: ErrorCode) -> None:
                answers.append(error)

        def produce() -> None:
            replica.wait_committed(replica.append(header, mine)[1], Waiter(), 0)

        world.processes[leader].call(produce)
        world.loop.run_for(0.05)
        assert replica.is_leader and not answers
        disk = world.disks[leader]
        disk.faults.capacity_bytes -= disk.free_bytes()
        offset = replica.log.end_offset
        theirs = build_batch(
            [NewRecord(None, b"theirs" * 99, 0)], base_offset=offset, leader_epoch=group.term
        )
        message = peer.Append(
            topic_id=replica.key.topic_id,
            partition=0,
            incarnation=0,
            follower_incarnation=0,
            term=group.term + 1,
            prev_index=group.end_index,
            prev_term=group.term,
            to_index=group.end_index + 1,
            commit_index=0,
            log_start=0,
            start_offset=offset,
            records=memoryview(theirs),
        )
        next_leader = next(voter for voter in group.configuration.voters if voter.node_id != leader)
        world.processes[leader].call(replica.append_received, ReplicaId(*next_leader), message)
        assert group.leader == next_leader
        assert answers == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_rot_in_an_old_segment_does_not_keep_the_node_from_starting() -> None:
    with running(settings={"log.segment.bytes": "1024"}) as world:
        world.create_topic("foo")
        for _ in range(10):
            world.produce("foo", b"a" * 400)
        world.wait_equal("foo")
        world.loop.run_for(2)
        directory_id = world.nodes[3].directory_id.bytes
        logs = [name for name in world.disks[3].list("/n3/foo-0") if name.endswith(".log")]
        world.kill(3)
        world.disks[3].flip_bits(f"/n3/foo-0/{logs[1]}", 8, 4, count=8)  # a length: no header follows
        world.start(3)
        world.wait_ready(3)
        world.wait(lambda: (3, directory_id, 1) in world.voters("foo"))
        world.wait_equal("foo")


FORGETFUL = {"producer.id.expiration.ms": "1000", "log.retention.check.interval.ms": "200"}


def _append(world: World, replica: Replica, sequence: int, timestamp_ms: int) -> int:
    """One record of producer 7 at the leader; its offset."""
    records = [NewRecord(None, b"a", timestamp_ms)]
    batch = build_batch(records, producer_id=7, producer_epoch=0, base_sequence=sequence)
    header = next(iter_batches(memoryview(batch)))[1]
    node_id = replica.group.self_id.node_id
    base_offset, end_offset = world.processes[node_id].call(replica.append, header, batch)
    world.wait(lambda: replica.high_watermark >= end_offset)
    return int(base_offset)


@pytest.mark.xfail(
    strict=True,
    reason="nobody calls ProducerStates.expire, and as it is nobody may: it goes by the records' own time",
)
def test_a_producer_that_is_idle_for_long_is_forgotten() -> None:
    with running(settings=FORGETFUL) as world:
        world.create_topic("foo")
        leader = world.leader("foo")
        replica = world.replica(leader, "foo")
        _append(world, replica, 0, world.nodes[leader].now_ms())
        world.loop.run_for(5)
        assert not replica.producers.entries


def test_a_producer_of_old_records_is_remembered_while_it_writes() -> None:
    """Somebody loads last year's data: forgotten by the time in its records, its retries would be appended twice."""
    with running(settings=FORGETFUL) as world:
        world.create_topic("foo")
        replica = world.replica(world.leader("foo"), "foo")
        for sequence in range(6):
            assert _append(world, replica, sequence, 1) == sequence
            world.loop.run_for(0.5)
            assert _append(world, replica, sequence, 1) == sequence, "its retry"


def test_the_controller_answers_when_a_majority_has_it_whatever_min_insync_replicas_is() -> None:
    """It is a setting for users' topics. No producer id is handed out otherwise while one of three nodes is down."""
    with running(settings={"min.insync.replicas": "3"}) as world:
        world.kill(3)
        world.loop.run_for(3)
        answer = world.ask(1, "allocate_producer_ids", {})
        assert answer["error_code"] == ErrorCode.NONE, answer


def test_a_lineage_whose_votes_the_journal_does_not_know_is_a_lost_identity() -> None:
    """Row 0 is written after the first vote record is durable: rows without a vote mean that a vote is lost, also where
    no record was ever produced (replication.md section 3)."""
    with running() as world:
        key = GroupKey(world.create_topic("foo").topic_id, 0)
        world.leader("foo")
        world.loop.run_for(1)
        world.kill(3)
        journal = Journal.open(world.disks[3])
        journal.append(Forget(key))
        journal.close()
        world.start(3)
        world.wait_ready(3)
        assert world.replica(3, "foo").group.self_id.incarnation == 1


def test_a_topic_whose_only_log_is_damaged_can_be_deleted() -> None:
    with running(size=1) as world:
        world.create_topic("foo", replication_factor=1)
        world.produce("foo", b"a" * 500)
        world.loop.run_for(2)
        world.kill(1)
        world.disks[1].flip_bits("/n1/foo-0/00000000000000000000.log", 100, 200, count=5)
        world.start(1)
        world.wait_ready()
        world.delete_topic("foo")
        world.loop.run_for(5)
        assert not world.folders(1, "foo-0")
