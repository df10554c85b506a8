"""A node contradicts leaders of older terms than the one in which it promised something, while its journal knows the
group."""

from __future__ import annotations

from functools import partial

from broker.metadata.records import TopicRecord
from protocol.controller.replicas import ReassignedPartition, ReassignPartitions
from raft.liveness_types import Challenge, Led, Ping
from storage.errors import CorruptLogError
from storage.log_types import GroupKey
from tests.broker.world import World, running

#: A node that no voter knows. It pings with a list of leaderships, and reads what it is answered.
STRANGER = 99


def challenge_of(world: World, node_id: int, key: GroupKey, term: int) -> Challenge | None:
    """What this node answers to a leader of that term."""
    liveness = world.nodes[node_id].heartbeat._liveness
    ping = Ping(
        number=1,
        boot_id=object(),
        list_version=1,
        base_version=0,
        led=(Led(key, term, 0, True),),
        dropped=(),
        echo_number=0,
        echo_boot_id=None,
        applied_version=0,
        challenged=(),
        reply_at_once=False,
    )
    liveness.ping_received(STRANGER, ping, world.loop.time())
    answer = liveness.ping_for(STRANGER, world.loop.time()).challenged
    return answer[0] if answer else None


def term_of(world: World, node_id: int, name: str) -> int:
    return world.replica(node_id, name).group.term


def has_replica(world: World, node_id: int, topic: TopicRecord) -> bool:
    return GroupKey(topic.topic_id, 0) in world.nodes[node_id].replicas.by_key


def test_a_node_that_gave_its_replica_up_contradicts_older_leaders_also_after_a_restart() -> None:
    with running() as world:
        topic = world.create_topic("foo")
        key = GroupKey(topic.topic_id, 0)
        world.produce("foo", b"x")
        world.wait_equal("foo")
        term = term_of(world, 3, "foo")
        target = ReassignedPartition(topic="foo", partition=0, node_ids=[1, 2])
        world.ask(1, ReassignPartitions(partitions=[target]))
        world.wait(lambda: not has_replica(world, 3, topic))
        assert challenge_of(world, 3, key, term - 1) == Challenge(key, term)
        assert challenge_of(world, 3, key, term) is None
        world.kill(3)
        world.start(3)
        world.wait_ready()
        assert challenge_of(world, 3, key, term - 1) == Challenge(key, term)


def test_a_node_contradicts_older_leaders_between_quarantine_and_reopening() -> None:
    with running() as world:
        topic = world.create_topic("foo")
        key = GroupKey(topic.topic_id, 0)
        world.produce("foo", b"x")
        world.wait_equal("foo")
        follower = 1 + world.leader("foo") % 3
        node, replica = world.nodes[follower], world.replica(follower, "foo")
        term = replica.group.term
        node.publisher._is_working = True  # as in the middle of many other partitions
        error = CorruptLogError(replica.log.directory, 0, "found by a read")
        world.processes[follower].call(node.replicas.log_corrupt, replica, error)
        world.wait(lambda: not has_replica(world, follower, topic))
        assert challenge_of(world, follower, key, term - 1) == Challenge(key, term)
        world.processes[follower].call(node.background.run, node.publisher._do_work())
        world.wait(lambda: has_replica(world, follower, topic))
        assert challenge_of(world, follower, key, term - 1) == Challenge(key, term)


def test_promises_in_a_deleted_topic_are_forgotten_when_the_journal_has_forgotten_them_durably() -> None:
    """Before that, a crash would bring the group back. After it, nothing is kept: a node may see many topics."""
    with running() as world:
        partitions = 40
        topic = world.create_topic("foo", partitions=partitions)
        keys = [GroupKey(topic.topic_id, number) for number in range(partitions)]
        for number in range(partitions):
            world.produce("foo", b"x", partition=number)
        node, disk = world.nodes[3], world.disks[3]
        terms = {key: node.replicas.by_key[key].group.term for key in keys}
        world.delete_topic("foo")
        disk.faults.hangs_until_s = world.loop.time() + 1.0
        world.wait(lambda: node.journal.state(keys[-1]) is None)
        assert node.journal.is_dirty
        assert challenge_of(world, 3, keys[-1], terms[keys[-1]] - 1) == Challenge(keys[-1], terms[keys[-1]])
        world.wait(lambda: not node.journal.is_dirty)
        assert not any(challenge_of(world, 3, key, terms[key] - 1) for key in keys)


def test_a_topic_that_was_deleted_while_its_node_was_down_leaves_no_promise() -> None:
    with running() as world:
        topic = world.create_topic("foo")
        world.produce("foo", b"x")
        world.wait_equal("foo")
        key, term = GroupKey(topic.topic_id, 0), term_of(world, 3, "foo")
        world.kill(3)
        world.delete_topic("foo")
        world.start(3)
        world.wait_ready()
        world.wait(partial(lambda node: node.journal.state(key) is None, world.nodes[3]))
        world.loop.run_for(1)
        assert challenge_of(world, 3, key, term - 1) is None
