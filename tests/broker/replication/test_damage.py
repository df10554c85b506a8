"""Logs that must not be used any more: rebuilt where there are others, left alone where there are none."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from broker.metadata.ids import METADATA_TOPIC_NAME
from protocol import peer
from protocol.controller.topics import CreateTopics, NewTopic
from protocol.errors import ErrorCode
from raft.types import ReplicaId
from storage.errors import CorruptLogError
from storage.journal import Journal
from storage.journal_records import Forget
from storage.log_types import GroupKey
from tests.broker.world import World, running
from tests.simulator.disk import MemoryDisk


def damage_metadata(disk: MemoryDisk, folder: str) -> None:
    disk.flip_bits(f"{folder}/partition.metadata", 12, 8)


def damage_topic_id(disk: MemoryDisk, folder: str) -> None:
    disk.corrupt(f"{folder}/partition.metadata", 25, b"\x80")


def remove_lineage(disk: MemoryDisk, folder: str) -> None:
    disk.unlink(f"{folder}/lineage")


@pytest.mark.parametrize("damage", [damage_metadata, damage_topic_id, remove_lineage])
def test_a_damaged_folder_is_rebuilt_and_does_not_stop_the_node(
    damage: Callable[[MemoryDisk, str], None],
) -> None:
    with running() as world:
        for name in ("foo", "bar"):
            world.create_topic(name)
            world.produce(name, b"a" * 500)
            world.wait_equal(name)
        directory_id = world.nodes[3].me.directory_id.bytes
        world.kill(3)
        damage(world.disks[3], "/n3/foo-0")
        damage(world.disks[3], f"/n3/{METADATA_TOPIC_NAME}-0")
        world.start(3)
        world.wait_ready()
        for name in ("foo", METADATA_TOPIC_NAME):
            world.wait(partial(lambda name: (3, directory_id, 1) in world.voters(name), name))
        world.wait_equal("foo")
        world.wait_equal("bar")
        assert (3, directory_id, 0) in world.voters("bar")


@pytest.mark.parametrize("damage", [damage_metadata, remove_lineage])
def test_a_damaged_folder_is_kept_where_it_is_the_only_log_until_its_topic_is_deleted(
    damage: Callable[[MemoryDisk, str], None],
) -> None:
    with running(size=1) as world:
        world.create_topic("foo", replication_factor=1)
        world.produce("foo", b"a" * 500)
        world.stop(1)
        damage(world.disks[1], "/n1/foo-0")
        log = "00000000000000000000.log"
        held = world.disks[1].durable_contents(f"/n1/foo-0/{log}")
        assert held
        for _ in range(2):
            world.start(1)
            world.wait_ready()
            assert ("foo", 0) not in world.nodes[1].replicas.by_name
            assert world.disks[1].durable_contents(f"/n1/foo-0/{log}") == held
            world.stop(1)
        world.start(1)
        world.wait_ready()
        world.delete_topic("foo")
        world.create_topic("foo", replication_factor=1)
        assert world.produce("foo", b"b") == 0
        world.stop(1)
        world.start(1)
        world.wait_ready()
        assert world.produce("foo", b"c") == 1


@pytest.mark.parametrize("power", [False, True])
def test_a_corrupt_log_is_rebuilt_under_another_incarnation(power: bool) -> None:
    with running() as world:
        world.create_topic("foo")
        world.produce("foo", b"a" * 500)
        world.wait_equal("foo")
        world.loop.run_for(2)  # the end is recorded: from now on damage is corruption
        directory_id = world.nodes[3].me.directory_id.bytes
        world.kill(3, power=power)
        world.disks[3].flip_bits("/n3/foo-0/00000000000000000000.log", 100, 200, count=5)
        world.start(3)
        world.wait_ready()
        world.wait(lambda: (3, directory_id, 1) in world.voters("foo"))
        assert len(world.voters("foo")) == 3
        world.wait_equal("foo")
        # ... and it keeps that identity.
        world.kill(3)
        world.start(3)
        world.wait_ready()
        assert world.replica(3, "foo").group.self_id == (3, directory_id, 1)


def test_rot_of_what_a_restart_found_is_no_torn_write() -> None:
    """What recovery made durable is recorded, although nothing is written to that log any more."""
    with running() as world:
        world.create_topic("foo")
        world.produce("foo", b"a" * 500)
        world.loop.run_for(2)
        follower = 1 + world.leader("foo") % 3
        directory_id = world.nodes[follower].me.directory_id.bytes
        log = world.replica(follower, "foo").log
        for end in (2, 3):  # one end is recorded in 100 ms: the first
            world.produce("foo", b"b" * 500)
            world.wait(partial(lambda end: log.flushed_end.end_offset == end, end))
        assert world.recorded_end(follower, "foo") < 3
        world.kill(follower)
        world.start(follower)
        world.wait_ready()
        world.loop.run_for(2)
        assert world.recorded_end(follower, "foo") == 3
        world.kill(follower)
        path = f"/n{follower}/foo-0/00000000000000000000.log"
        size = len(world.disks[follower].durable_contents(path) or b"")
        world.disks[follower].flip_bits(path, size - 100, 50, count=5)
        world.start(follower)
        world.wait_ready()
        world.wait(lambda: (follower, directory_id, 1) in world.voters("foo"))


def test_a_lost_metadata_log_is_rebuilt_too() -> None:
    with running() as world:
        world.create_topic("foo")
        world.loop.run_for(2)
        directory_id = world.nodes[3].me.directory_id.bytes
        world.kill(3)
        world.disks[3].remove_tree(f"/n3/{METADATA_TOPIC_NAME}-0")
        world.start(3)
        world.wait_ready()
        world.wait(lambda: (3, directory_id, 1) in world.voters(METADATA_TOPIC_NAME))
        assert len(world.voters(METADATA_TOPIC_NAME)) == 3
        world.wait_equal("foo")


def test_the_only_log_is_never_discarded() -> None:
    with running(size=1) as world:
        world.create_topic("foo", replication_factor=1)
        world.produce("foo", b"a" * 500)
        world.loop.run_for(2)
        world.kill(1)
        path = "/n1/foo-0/00000000000000000000.log"
        world.disks[1].flip_bits(path, 100, 200, count=5)
        damaged = world.disks[1].durable_contents(path)
        for _ in range(2):
            world.start(1)
            world.wait_ready()
            world.loop.run_for(1)
            assert ("foo", 0) not in world.nodes[1].replicas.by_name
            assert world.disks[1].durable_contents(path) == damaged
            world.create_topic(f"bar{_}", replication_factor=1)
            world.kill(1)


def test_a_log_that_lost_its_metadata_is_rebuilt_where_there_are_others() -> None:
    with running() as world:
        world.create_topic("foo")
        world.produce("foo", b"a" * 500)
        world.wait_equal("foo")
        directory_id = world.nodes[3].me.directory_id.bytes
        world.kill(3)
        world.disks[3].unlink("/n3/foo-0/partition.metadata")
        world.start(3)
        world.wait_ready()
        world.wait(lambda: (3, directory_id, 1) in world.voters("foo"))
        world.wait_equal("foo")


def test_a_log_that_lost_its_metadata_is_kept_where_it_is_the_only_one() -> None:
    with running(size=1) as world:
        world.create_topic("foo", replication_factor=1)
        world.create_topic("gone", replication_factor=1)
        for name in ("foo", "gone"):
            world.produce(name, b"a" * 500)
        world.stop(1)
        disk = world.disks[1]
        segment = "00000000000000000000.log"
        held = {name: disk.durable_contents(f"/n1/{name}-0/{segment}") for name in ("foo", "gone")}
        assert all(held.values())
        for name in held:
            disk.unlink(f"/n1/{name}-0/partition.metadata")
        disk.rename("/n1/gone-0", "/n1/nobodys-0")
        world.start(1)
        world.wait_ready()
        assert ("foo", 0) not in world.nodes[1].replicas.by_name
        assert disk.durable_contents(f"/n1/foo-0/{segment}") == held["foo"]
        assert disk.durable_contents(f"/n1/nobodys-0-stray/{segment}") == held["gone"]


def test_a_topic_recreated_under_its_name_while_a_node_is_away_has_none_of_the_old_records() -> None:
    with running() as world:
        old = world.create_topic("foo")
        world.produce("foo", *[b"old"] * 20)
        world.wait_equal("foo")
        world.kill(3)
        world.delete_topic("foo")
        new = world.create_topic("foo", via=1)
        assert new.topic_id != old.topic_id
        world.produce("foo", b"new")
        world.start(3)
        world.wait_ready()
        world.wait_equal("foo")
        assert world.replica(3, "foo").key.topic_id == new.topic_id


def test_a_leader_whose_own_bytes_are_bad_resigns_and_is_rebuilt() -> None:
    """A follower that was away is sent what rotted meanwhile; its CRC finds it (replication.md section 2)."""
    with running() as world:
        world.create_topic("foo")
        leader = world.leader("foo")
        away = 1 + leader % 3
        world.kill(away)
        world.produce("foo", b"a" * 500)
        world.produce("foo", b"b")  # the leader has its last write in memory, and nothing before it
        world.loop.run_for(2)
        directory_id = world.nodes[leader].me.directory_id.bytes
        log = f"/n{leader}/foo-0/00000000000000000000.log"
        world.disks[leader].flip_bits(log, 100, 200, count=5)
        world.start(away)
        world.wait_ready()
        world.wait(lambda: (leader, directory_id, 1) in world.voters("foo"))
        assert world.produce("foo", b"c") == 2
        world.wait_equal("foo")


def test_a_replica_that_is_closed_says_nothing_when_its_flush_is_over() -> None:
    """Seed 548444148088: what waited for the flush of a log was said when that was given up, for an identity that was
    another one by then."""
    with running() as world:
        world.create_topic("foo")
        world.produce("foo", b"a")
        world.wait_equal("foo")
        leader = world.leader("foo")
        voter, candidate = 1 + leader % 3, 1 + (leader + 1) % 3
        node, replica = world.nodes[voter], world.replica(voter, "foo")
        said_when_open: list[bool] = []
        send_to = node.cluster.send_to

        def send(directory: tuple[int, bytes], message: peer.PeerMessage) -> None:
            if isinstance(message, peer.VoteReply) and message.topic_id == replica.key.topic_id:
                said_when_open.append(replica.is_open or message.incarnation > 0)
            send_to(directory, message)

        node.cluster.send_to = send  # type: ignore[method-assign]
        term = replica.group.term
        world.disks[voter].faults.hangs_until_s = world.loop.time() + 0.3
        to = world.replica(candidate, "foo").group.self_id
        world.processes[leader].call(world.replica(leader, "foo").driver.transfer_leadership, to)
        world.wait(lambda: replica.group.term > term)
        error = CorruptLogError(replica.log.directory, 0, "as if")
        world.processes[voter].call(node.replicas.log_corrupt, replica, error)
        world.wait(lambda: world.replica(voter, "foo") is not replica)
        assert not said_when_open, "the vote still waits for the disk"
        world.wait_equal("foo")
        assert all(said_when_open)


def test_a_log_whose_creation_a_crash_cut_short_is_begun_again_and_not_lost() -> None:
    with running(size=1) as world:
        key = GroupKey(world.create_topic("foo", replication_factor=1).topic_id, 0)
        world.leader("foo")
        world.stop(1)
        journal = Journal.open(world.disks[1])
        journal.append(Forget(key))  # as if its first vote had not reached the disk
        journal.close()
        world.disks[1].open("/n1/foo-0/lineage").truncate(0)  # row 0 is written after that
        world.start(1)
        world.wait_ready()
        assert world.produce("foo", b"a") == 0


def test_rot_in_the_metadata_log_is_never_taken_for_what_was_decided() -> None:
    """A node that lagged reads its log when it learns of the commit; what rotted by then must not change its image, nor
    end it in some parser: it quarantines the log, starts anew as without metadata it cannot live, and is rebuilt."""
    with running() as world:
        world.loop.run_for(1)
        follower = next(
            node_id
            for node_id in world.ids
            if (replica := world.nodes[node_id].metadata.replica) is not None and not replica.is_leader
        )
        node, process = world.nodes[follower], world.processes[follower]
        replica = node.metadata.replica
        assert replica is not None
        seen = node.metadata._commit_advanced
        node.replica_events.commit_advanced.remove(seen)  # it is slow to look
        before = replica.log.end_offset
        others = [other for other in world.ids if other != follower]
        world.ask(others[0], CreateTopics(topics=[NewTopic(name="foo")]))
        world.wait(lambda: replica.high_watermark > before)
        for batch in list(replica.log.batches(before)):
            body = batch.position + 70
            corrupt = bytes(byte ^ 1 for byte in bytes(batch.file.read(body, 30)))
            batch.file.write_at(body, corrupt)
        process.call(seen, replica)
        assert node.metadata.image.topic_named("foo") is None
        world.wait(lambda: not process.alive)
        world.wait(lambda: follower in world.nodes)
        world.wait_ready()
        assert world.nodes[follower].metadata.image.topic_named("foo") is not None
        world.produce("foo", b"a")
        world.wait_equal("foo")


def refuse(world: World, node_id: int, sender: int, term: int, start_index: int) -> None:
    """What a follower says of a range that it found damaged; it comes late."""
    replica = world.replica(node_id, "foo")
    message = peer.AppendError(
        topic_id=replica.key.topic_id,
        partition=0,
        incarnation=0,
        term=term,
        start_index=start_index,
        error_code=ErrorCode.CORRUPT_MESSAGE,
    )
    identity = next(v for v in replica.group.configuration.voters if v.node_id == sender)
    world.processes[node_id].call(replica.driver.append_error_received, ReplicaId(*identity), message)


def test_a_late_refusal_of_what_is_deleted_since_is_no_rot() -> None:
    with running(settings={"log.segment.bytes": "1024"}) as world:
        world.create_topic("foo")
        for _ in range(10):
            world.produce("foo", b"a" * 400)
        world.wait_equal("foo")
        leader = world.leader("foo")
        replica = world.replica(leader, "foo")
        world.processes[leader].call(replica.log_start.delete_records, 9)
        world.wait(lambda: replica.log.first_stored_offset > 4)
        refuse(world, leader, 1 + leader % 3, replica.group.term, replica.log.lineage.rows_below_index(4) + 4)
        world.loop.run_for(1)
        assert world.replica(leader, "foo").group.self_id.incarnation == 0


def test_a_late_refusal_of_an_earlier_leaders_range_is_no_rot() -> None:
    """It was deposed since, and has another leader's batches there, with other ends."""
    with running() as world:
        world.create_topic("foo")
        world.produce("foo", b"a", b"b", b"c")
        world.wait_equal("foo")
        follower = 1 + world.leader("foo") % 3
        group = world.replica(follower, "foo").group
        refuse(world, follower, 1 + follower % 3, group.term - 1, group.end_index - 1)
        world.loop.run_for(1)
        assert world.replica(follower, "foo").group.self_id.incarnation == 0
