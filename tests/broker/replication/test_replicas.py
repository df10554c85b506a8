"""Replicas: what a review found broken in them. Whoever mends one takes its mark away."""

from __future__ import annotations

import gc
import weakref

from broker.replication.replica import Replica
from protocol import peer
from protocol.api_keys import ApiKey
from protocol.controller.brokers import AllocateProducerIds
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
from storage.disk import BLOCK_BYTES
from storage.errors import CorruptLogError
from storage.journal import Journal
from storage.journal_records import Forget
from storage.log_types import GroupKey
from storage.producer_snapshot import load_producers
from storage.segment_files import segment_path
from tests.broker.asking import ask
from tests.broker.world import World, running
from tests.storage.helpers import segment_bases


def _produce(world: World, node_id: int, name: str) -> int:
    """One record with acks=all, put to that node; its error code."""
    records = memoryview(build_batch([NewRecord(None, b"x", world.nodes[node_id].clock.now_ms())]))
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
        world.wait(lambda: leader.log.start_offset > 0)
        start = leader.log.start_offset
        world.wait(lambda: world.replica(b, "foo").log.start_offset == leader.log_start_offset == start)
        world.nodes[b].replicas.stop_campaigning()
        world.kill(a)
        world.start(c)
        world.wait_ready(c)
        world.wait(
            lambda: world.replica(c, "foo").is_serving and world.replica(c, "foo").log_start_offset >= 0
        )
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
        mine = build_batch([NewRecord(None, b"mine", node.clock.now_ms())])
        header = next(iter_batches(memoryview(mine)))[1]
        answers: list[ErrorCode] = []

        class Waiter:
            def partition_done(self, slot: int, error: ErrorCode) -> None:
                answers.append(error)

        def produce() -> None:
            replica.waits.add_commit(replica.append(header, mine)[1], Waiter(), 0)

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
            start_index=group.end_index,
            prev_term=group.term,
            to_index=group.end_index + 1,
            commit_end=0,
            log_start=0,
            start_offset=offset,
            records=memoryview(theirs),
        )
        next_leader = next(voter for voter in group.configuration.voters if voter.node_id != leader)
        world.processes[leader].call(replica.driver.append_received, ReplicaId(*next_leader), message, [])
        assert group.leader == next_leader
        assert answers == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


def _remove_snapshots(world: World, node_id: int) -> None:
    disk, directory = world.disks[node_id], f"/n{node_id}/foo-0"
    for name in disk.list(directory):
        if name.endswith(".snapshot"):
            disk.unlink(f"{directory}/{name}")


def test_rot_in_an_old_segment_does_not_keep_the_node_from_starting() -> None:
    with running(settings={"log.segment.bytes": "1024"}) as world:
        world.create_topic("foo")
        for _ in range(10):
            world.produce("foo", b"a" * 400)
        world.wait_equal("foo")
        world.loop.run_for(2)
        directory_id = world.nodes[3].me.directory_id.bytes
        logs = [name for name in world.disks[3].list("/n3/foo-0") if name.endswith(".log")]
        world.kill(3)
        _remove_snapshots(world, 3)  # or nobody reads that segment
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


def test_a_producer_that_is_idle_for_long_is_forgotten() -> None:
    with running(settings=FORGETFUL) as world:
        world.create_topic("foo")
        leader = world.leader("foo")
        replica = world.replica(leader, "foo")
        _append(world, replica, 0, world.nodes[leader].clock.now_ms())
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


def test_what_is_sent_to_the_followers_is_not_kept_for_ever() -> None:
    """Each partition would pin the whole frame of its last produce."""

    class Frame(bytearray):
        """Can be asked for when it goes."""

    for size in (1, 3):
        with running(size=size) as world:
            world.create_topic("foo", replication_factor=size)
            leader = world.leader("foo")
            replica = world.replica(leader, "foo")
            frame = Frame(build_batch([NewRecord(None, b"a", 1)]))
            held = weakref.ref(frame)
            header = next(iter_batches(memoryview(frame)))[1]
            world.processes[leader].call(replica.append, header, frame)
            del frame
            world.loop.run_for(1)
            assert replica.high_watermark == 1
            gc.collect()
            assert held() is None


def test_the_producers_are_remembered_from_segment_to_segment() -> None:
    """What is read again when a log is opened, or goes back, is about one segment."""
    with running(settings={"log.segment.bytes": "1024"}) as world:
        world.create_topic("foo")
        replica = world.replica(world.leader("foo"), "foo")
        for sequence in range(40):
            _append(world, replica, sequence, 1)
        world.wait_equal("foo")
        for node_id in world.ids:
            log = world.replica(node_id, "foo").log
            assert len(segment_bases(log)) > 2
            assert log.snapshot_offsets()[-1] >= segment_bases(log)[-2]
            assert load_producers(log).entries == replica.producers.entries
        world.kill(2, power=True)
        world.start(2)
        world.wait_ready(2)
        world.wait_equal("foo")
        assert world.replica(2, "foo").producers.entries == replica.producers.entries


def test_no_snapshot_is_kept_of_what_was_never_committed() -> None:
    """Its producers would be told of a duplicate that does not exist (replication.md section 8)."""
    with running(settings={"log.segment.bytes": "1024"}) as world:
        world.create_topic("foo")
        leader = world.leader("foo")
        replica = world.replica(leader, "foo")
        world.wait_equal("foo")
        for other in world.ids:
            if other != leader:
                world.network.cut(f"n{leader}", f"n{other}")
        for sequence in range(12):
            batch = build_batch(
                [NewRecord(None, b"a" * 200, 1)], producer_id=7, producer_epoch=0, base_sequence=sequence
            )
            header = next(iter_batches(memoryview(batch)))[1]
            world.processes[leader].call(replica.append, header, batch)
            world.loop.run_for(0.01)
        assert len(segment_bases(replica.log)) > 1 and not replica.log.snapshot_offsets()
        world.loop.run_for(5)
        for other in world.ids:
            if other != leader:
                world.network.heal(f"n{leader}", f"n{other}")
        for _ in range(12):
            world.produce("foo", b"b" * 200)
        world.wait_equal("foo")
        assert len(segment_bases(replica.log)) > 1 and replica.log.snapshot_offsets()
        assert not load_producers(replica.log).entries
        assert not replica.producers.entries


def test_a_leader_whose_log_is_found_corrupt_with_staged_batches_goes_on_without_it() -> None:
    """Resigning, it reads its producers again, and comes upon the damage a second time."""
    with running(settings={"log.segment.bytes": "1024"}) as world:
        world.create_topic("foo")
        for _ in range(10):
            world.produce("foo", b"a" * 400)
        world.wait_equal("foo")
        leader = world.leader("foo")
        node, replica = world.nodes[leader], world.replica(leader, "foo")
        directory = f"/n{leader}/foo-0"
        _remove_snapshots(world, leader)
        for base_offset in segment_bases(replica.log):
            path = segment_path(directory, base_offset)
            world.disks[leader].flip_bits(path, 8, 4, count=8)  # a length: no header follows
        batch = build_batch([NewRecord(None, b"b", 1)])
        header = next(iter_batches(memoryview(batch)))[1]

        def find_and_stage() -> None:
            node.replicas.log_corrupt(replica, CorruptLogError(directory, 0, "found by a read"))
            replica.append(header, batch)

        world.processes[leader].call(find_and_stage)
        world.loop.run_for(1)
        assert not replica.is_open
        world.wait_equal("foo")


def test_a_follower_whose_disk_is_full_waits_with_its_install() -> None:
    settings = {
        "log.segment.bytes": "1024",
        "log.retention.bytes": "1",
        "log.retention.check.interval.ms": "500",
        "log.min.free.bytes": "0",
    }
    with running(settings=settings) as world:
        world.create_topic("foo")
        leader = world.leader("foo")
        late = 1 + leader % 3
        world.wait_equal("foo")
        others = [node_id for node_id in world.ids if node_id != late]
        for other in others:
            world.network.cut(f"n{late}", f"n{other}")
            world.network.cut(f"n{other}", f"n{late}")
        world.loop.run_for(3)
        for _ in range(20):
            world.produce("foo", b"a" * 400)
        world.loop.run_for(2)
        start = world.replica(world.leader("foo"), "foo").log.start_offset
        assert start > 0
        disk = world.disks[late]
        disk.faults.capacity_bytes -= disk.free_bytes()
        world.network.heal_all()
        world.loop.run_for(5)
        assert late in world.processes and world.replica(late, "foo").log.start_offset == 0
        disk.faults.capacity_bytes += 1 << 30
        world.wait(lambda: world.replica(late, "foo").log.start_offset == start, limit_s=1)
        world.wait_equal("foo")


def test_a_follower_asks_for_what_its_full_disk_did_not_take() -> None:
    """Its leader tries again only after seconds, and nobody leads for so long where the range was its first row."""
    with running() as world:
        world.create_topic("foo")
        leader = world.leader("foo")
        late = 1 + leader % 3
        world.wait_equal("foo")
        disk = world.disks[late]
        full_by = disk.free_bytes()
        disk.faults.capacity_bytes -= full_by
        world.produce("foo", b"a" * 400)
        world.loop.run_for(2.5)
        end = world.replica(leader, "foo").log.end_offset
        assert world.replica(late, "foo").log.end_offset < end
        disk.faults.capacity_bytes += full_by
        world.wait(lambda: world.replica(late, "foo").log.end_offset == end, limit_s=1)


def test_the_controller_answers_when_a_majority_has_it_whatever_min_insync_replicas_is() -> None:
    """It is a setting for users' topics. No producer id is handed out otherwise while one of three nodes is down."""
    with running(settings={"min.insync.replicas": "3"}) as world:
        world.kill(3)
        world.loop.run_for(3)
        assert world.ask(1, AllocateProducerIds()).count > 0


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


def test_retention_waits_for_room_on_a_full_disk() -> None:
    """What it writes, a snapshot and a new segment, has no room; the node goes on and deletes later."""
    settings = {
        "log.segment.bytes": "1024",
        "log.retention.bytes": "1",
        "log.retention.check.interval.ms": "1000000000",
        "log.min.free.bytes": "0",
    }
    with running(size=1, settings=settings) as world:
        world.create_topic("foo", replication_factor=1)
        replica = world.replica(world.leader("foo"), "foo")
        for sequence in range(20):
            _append(world, replica, sequence, 1)
        world.loop.run_for(1)
        disk = world.disks[1]
        disk.faults.capacity_bytes -= (
            disk.free_bytes() + BLOCK_BYTES
        )  # to seal a segment gives its padding back
        world.processes[1].call(replica.apply_retention)
        world.loop.run_for(1)
        assert replica.log.first_stored_offset == 0 and replica.is_serving
        disk.faults.capacity_bytes += 1 << 20
        world.processes[1].call(replica.apply_retention)
        assert replica.log.start_offset > 0 and replica.log.first_stored_offset > 0


def test_batches_before_and_after_a_refused_transfer_are_sent_once() -> None:
    """All in one loop iteration. The transfer has what is staged written at once, and the turn did the same once more
    for each time that the replica was noted: the group was told twice of the second batch, and the node ended (found by
    simulation seed 127167576959)."""
    with running() as world:
        world.create_topic("foo")
        leader = world.leader("foo")
        replica = world.replica(leader, "foo")
        now_ms = world.nodes[leader].clock.now_ms()

        def append() -> None:
            batch = build_batch([NewRecord(None, b"x", now_ms)])
            replica.append(next(iter_batches(memoryview(batch)))[1], batch)

        def both() -> None:
            append()
            assert not replica.driver.transfer_leadership(ReplicaId(99, bytes(16), 0)), (
                "nobody has this identity"
            )
            append()

        world.processes[leader].call(both)
        world.wait(lambda: replica.high_watermark == 2)
        world.wait_equal("foo")


def test_the_active_segment_of_an_internal_log_is_sealed_when_it_is_most_of_the_log() -> None:
    with running() as world:
        world.create_topic("t")
        world.produce("t", b"v" * 600_000)
        replica = world.replica(world.leader("t"), "t")
        replica.prepare_compaction(is_internal=True)
        assert len(replica.log.segments()) == 1, "it is small"
        world.produce("t", b"v" * 600_000)
        replica.prepare_compaction(is_internal=False)
        assert len(replica.log.segments()) == 1, "of a user's topic, the settings decide"
        replica.prepare_compaction(is_internal=True)
        assert len(replica.log.segments()) == 2
        world.produce("t", b"v" * 900_000)
        world.produce("t", b"v" * 200_000)
        replica.prepare_compaction(is_internal=True)
        assert len(replica.log.segments()) == 2, "it is less than half"
