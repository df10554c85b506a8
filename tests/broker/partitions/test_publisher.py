"""From the image to replicas: a few per turn, and nothing is left of what was deleted."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from broker.partitions.publisher import OPENED_PER_STEP
from broker.scheduling import background
from protocol.controller.topics import CreateTopics, NewTopic, ReplicaAssignment
from protocol.errors import ErrorCode
from storage.journal import Journal
from storage.journal_records import Vote
from storage.log_types import GroupKey
from tests.broker.world import World, running

MANY = 100


def _open(world: World, node_id: int = 1) -> int:
    return len(world.nodes[node_id].replicas.by_name)


def test_many_partitions_are_opened_and_deleted_over_many_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """All at once they would outlast an election timeout."""
    monkeypatch.setattr(background, "PIECE_S", -1.0)  # simulated time stands still while a callback runs
    with running(size=1) as world:
        node, counts = world.nodes[1], [0]
        world.loop.after_callback.append(lambda: counts.append(len(node.replicas.by_name)))
        topic = world.create_topic("foo", partitions=MANY, replication_factor=1)
        last = GroupKey(topic.topic_id, MANY - 1)
        assert node.publisher.is_opening(last)
        assert node.view.why_no_replica("foo", MANY - 1) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        world.wait(lambda: _open(world) == MANY)
        assert not node.publisher.is_opening(last)
        world.leader("foo", MANY - 1)
        world.delete_topic("foo")
        world.wait(lambda: _open(world) == 0)
        assert [x for x in world.folders(1, "foo-") if "-delete" not in x]
        world.wait(lambda: not [x for x in world.folders(1, "foo-") if "-delete" not in x])
        changes = [abs(after - before) for before, after in pairwise(counts)]
        assert 0 < max(changes) <= 2 * OPENED_PER_STEP


def test_a_node_is_ready_when_all_its_partitions_are_open() -> None:
    with running(size=1) as world:
        world.create_topic("foo", partitions=MANY, replication_factor=1)
        world.wait(lambda: _open(world) == MANY)
        world.kill(1)
        world.start(1)
        world.wait_ready()
        assert _open(world) == MANY


def test_a_topic_may_be_deleted_before_it_is_open() -> None:
    with running(size=1) as world:
        first = world.create_topic("foo", partitions=MANY, replication_factor=1)
        world.delete_topic("foo")
        again = world.create_topic("foo", partitions=MANY, replication_factor=1)
        world.wait(lambda: _open(world) == MANY)
        world.loop.run_for(5)
        assert first.topic_id != again.topic_id
        assert {key.topic_id for key in world.nodes[1].replicas.by_key} >= {again.topic_id}
        assert first.topic_id not in {key.topic_id for key in world.nodes[1].journal.groups()}
        assert len(world.folders(1, "foo-")) == MANY


def test_a_node_that_stops_with_partitions_to_open_opens_them_when_it_is_back() -> None:
    with running(size=1) as world:
        world.create_topic("foo", partitions=MANY, replication_factor=1)
        world.stop(1)
        world.start(1)
        world.wait_ready()
        assert _open(world) == MANY


def test_the_journal_forgets_deleted_groups_although_a_crash_came_first() -> None:
    """The folder goes, then the record that the group is forgotten is lost."""
    with running(size=1) as world:
        topic = world.create_topic("foo", replication_factor=1)
        world.leader("foo")
        world.delete_topic("foo")
        world.loop.run_for(1)
        key = GroupKey(topic.topic_id, 0)
        assert world.nodes[1].journal.state(key) is None
        world.kill(1)
        journal = Journal.open(world.disks[1])
        journal.append(Vote(key, 1, None))
        journal.close()
        world.start(1)
        world.wait_ready()
        world.loop.run_for(1)
        assert world.nodes[1].journal.state(key) is None


@pytest.mark.parametrize("seed", range(8))
def test_a_loss_of_power_while_partitions_are_made_costs_none_of_them(seed: int) -> None:
    """Their folders are made together: whatever part of that is on disk, nobody's identity is lost by it."""
    with running(seed=seed) as world:
        world.create_topic("foo", partitions=MANY)
        rng = random.Random(seed)
        made = rng.randrange(MANY)
        world.wait(lambda: any(_open(world, node_id) > made for node_id in world.ids))
        for node_id in world.ids:
            world.kill(node_id, power=True)
        for node_id in world.ids:
            world.start(node_id)
        world.wait_ready()
        for partition in range(MANY):
            world.produce("foo", b"x", partition=partition)
        assert {
            replica.group.self_id.incarnation
            for node in world.nodes.values()
            for replica in node.replicas.by_name.values()
        } == {0}


def test_a_candidate_that_was_early_is_answered_when_the_partition_is_open() -> None:
    """Nodes open a thousand partitions each at its own pace. Who asks too early need not wait for another election."""
    with running() as world:
        late = [2, 3]
        for node_id in late:
            world.nodes[node_id].publisher._is_working = True  # as in the middle of many others
        topic = NewTopic(name="foo", assignments=[ReplicaAssignment(partition=0, node_ids=[1, 2, 3])])
        world.ask(1, CreateTopics(topics=[topic]))
        world.loop.run_for(0.4)
        for node_id in late:
            node = world.nodes[node_id]
            world.processes[node_id].call(node.background.run, node.publisher._do_work())
        opened_s = world.loop.time()
        assert world.leader("foo") == 1
        assert world.loop.time() - opened_s < 0.1
