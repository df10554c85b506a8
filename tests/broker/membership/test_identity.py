"""Who a node is, through power cuts, wiped volumes and lost logs (replication.md sections 3, 4 and 10)."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress

import pytest
from structlog.testing import capture_logs

from broker.config.node_config import NodeConfig
from broker.controller import service as metadata_service
from broker.controller.service import METADATA_KEY
from broker.membership.identity import open_identity
from broker.metadata.ids import METADATA_TOPIC_NAME
from broker.replication.watermarks.compaction_bounds import CompactionBounds
from protocol.controller.topics import CreateTopics, NewTopic
from raft.types import ReplicaId
from storage.directory import MetaProperties, format_directory
from storage.disk import File
from storage.journal_records import Vote
from tests.broker.world import empty, running
from tests.simulator.loop import new_loop
from tests.storage.helpers import StopError, StoppingMemoryDisk


def test_three_empty_nodes_form_a_cluster_and_keep_what_they_acknowledge() -> None:
    with running() as world:
        world.create_topic("foo")
        assert world.produce("foo", b"a", b"b") == 0
        world.wait_equal("foo")
        for node_id in world.ids:
            world.kill(node_id, power=True)
        world.start_all()
        assert world.produce("foo", b"c") == 2
        world.wait_equal("foo")


def test_a_wiped_node_that_hears_who_leads_before_it_has_joined_waits() -> None:
    """Seed 322262086865: it registered, and there was no metadata log whose incarnation it could name."""
    with running() as world:
        leader = world.nodes[1].leaders.controller_id()
        wiped = 1 + leader % 3
        world.kill(wiped)
        world.wipe(wiped)
        node = world.start(wiped)
        world.loop.run_for(0)  # everything is assembled, nothing is dialled yet
        assert node.metadata.replica is None
        node.leaders.announce(*METADATA_KEY, leader, 1, 0, True, assigned=world.ids)
        assert node.leaders.controller_id() == leader
        world.processes[wiped].call(node.registration.tick, world.loop.time())
        world.wait_ready()


def test_a_wiped_node_comes_back_with_a_new_identity_in_every_group() -> None:
    with running() as world:
        topic = world.create_topic("foo")
        world.produce("foo", b"a")
        world.kill(3)
        world.wipe(3)
        world.start(3)
        world.wait_ready()
        new = world.nodes[3].me.directory_id
        assert new not in topic.partitions[0].directories
        for name in ("foo", METADATA_TOPIC_NAME):
            world.wait(lambda name=name: (3, new.bytes, 0) in world.voters(name))  # type: ignore[misc]
            assert [voter[0] for voter in world.voters(name)] == [1, 2, 3]
        world.wait_equal("foo")


def test_a_power_cut_while_the_cluster_forms_strands_nobody() -> None:
    """Node 1 has named the directories of all three durably; node 2 must come back as the one that was named."""
    with empty() as world:
        for node_id in world.ids:
            world.start(node_id)
        world.wait(lambda: world.nodes[1].cluster_id is not None)
        for node_id in world.ids:
            world.kill(node_id, power=True)
        world.start_all()
        assert len({node.cluster_id for node in world.nodes.values()}) == 1
        world.create_topic("foo")
        world.produce("foo", b"a")


def test_a_node_that_lost_its_votes_rejoins_as_another_and_keeps_its_logs_aside() -> None:
    with running() as world:
        world.create_topic("foo")
        world.produce("foo", b"a")
        world.wait_equal("foo")
        old = world.nodes[3].me.directory_id
        world.stop(3)
        world.disks[3].unlink("/n3/journal")
        world.start(3)
        world.wait_ready()
        new = world.nodes[3].me.directory_id
        assert new != old
        for name in ("foo", METADATA_TOPIC_NAME):
            world.wait(lambda name=name: (3, new.bytes, 0) in world.voters(name))  # type: ignore[misc]
        assert any(name.endswith("-stray") for name in world.folders(3, "foo-0."))
        world.wait_equal("foo")


def test_rot_in_the_journal_is_a_lost_identity() -> None:
    with running() as world:
        world.create_topic("foo")
        world.produce("foo", b"a")
        world.wait_equal("foo")
        old = world.nodes[3].me.directory_id
        world.loop.run_for(2)
        world.kill(3)
        world.disks[3].flip_bits("/n3/journal", 40, 20, count=8)
        world.start(3)
        world.wait_ready()
        new = world.nodes[3].me.directory_id
        assert new != old
        assert world.folders(3, "journal.corrupt")
        world.wait(lambda: (3, new.bytes, 0) in world.voters("foo"))
        world.wait_equal("foo")


@pytest.mark.parametrize(
    "damage",
    [lambda journal: journal.write_at(0, bytes(journal.size)), lambda journal: journal.truncate(0)],
    ids=["zeros", "empty"],
)
def test_a_journal_without_a_record_is_a_lost_identity(damage: Callable[[File], None]) -> None:
    """Votes and incarnations are gone, as with a journal that is missing."""
    with running() as world:
        world.create_topic("foo")
        world.produce("foo", b"a")
        world.wait_equal("foo")
        old = world.nodes[3].me.directory_id
        world.kill(3)
        journal = world.disks[3].open("/n3/journal")
        damage(journal)
        journal.flush()
        world.start(3)
        world.wait_ready()
        new = world.nodes[3].me.directory_id
        assert new != old
        assert world.folders(3, "journal.corrupt")
        world.wait(lambda: (3, new.bytes, 0) in world.voters("foo"))
        world.wait_equal("foo")


def test_a_node_whose_metadata_log_is_no_legitimate_copy_starts_anew_and_rebuilds_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """L6 of coordinated-compaction.md. A node cannot do without its metadata, so it starts anew."""
    with running() as world:
        world.kill(3)
        world.wipe(3)
        monkeypatch.setattr(CompactionBounds, "may_vote", lambda self, learner: False)
        world.start(3)
        world.wait_ready()
        own = world.nodes[3].me.directory_id.bytes
        group = world.nodes[3].replicas.by_key[METADATA_KEY].group
        world.wait(lambda: ReplicaId(3, own, 0) in group.configuration.learners)
        monkeypatch.setattr(CompactionBounds, "must_discard", lambda self, member: member[0] == 3)
        first = world.processes[3]
        world.wait(lambda: not first.alive)
        monkeypatch.undo()
        world.wait_ready()
        group = world.nodes[1].replicas.by_key[METADATA_KEY].group
        world.wait(lambda: ReplicaId(3, own, 1) in group.committed_configuration.voters)


def test_an_empty_node_is_told_of_its_cluster_by_those_that_learned_of_it_again() -> None:
    """Seed 605280942057: one node's journal is corrupt, another one's metadata log is gone, and both are sent it anew.
    Nobody has held row 0 since it started when the third node comes back with an empty disk."""
    with running() as world:
        world.create_topic("foo")
        world.kill(1)
        journal = world.disks[1].open("/n1/journal")
        journal.truncate(20)
        journal.flush()
        world.start(1)
        world.wait_ready()
        assert world.folders(1, "journal.corrupt")
        new = world.nodes[1].me.directory_id.bytes
        world.wait(lambda: (1, new, 0) in world.voters(METADATA_TOPIC_NAME))
        world.wait(lambda: (1, new, 0) in world.voters("foo"))
        world.kill(2)
        world.disks[2].vanish(f"/n2/{METADATA_TOPIC_NAME}-0")
        world.start(2)
        world.wait_ready()
        again = ReplicaId(2, world.nodes[2].me.directory_id.bytes, 1)
        group = world.nodes[1].replicas.by_key[METADATA_KEY].group
        world.wait(lambda: again in group.committed_configuration.voters)
        world.kill(3)
        world.wipe(3)
        world.start(3)
        world.wait_ready()
        world.produce("foo", b"a")
        world.wait_equal("foo")


def test_a_directory_whose_creation_was_cut_short_starts() -> None:
    """Power is lost at every step of the first start, up to when the directory has its cluster. Whatever is left, the
    next start takes none of it for damage."""
    step, is_finished = 0, False
    while not is_finished:
        loop = new_loop()
        disk = StoppingMemoryDisk("/n1", loop, random.Random(step))
        directory_id = None
        disk.calls_left = step
        with suppress(StopError):
            identity = open_identity(disk, NodeConfig(node_id=1), random.Random(1))
            directory_id = identity.directory_id
            identity.journal.append(Vote(METADATA_KEY, 1, None))
            identity.journal.flush()
            format_directory(disk, MetaProperties("cluster", 1, directory_id))
            is_finished = True
        disk.calls_left = None
        disk.crash()
        with capture_logs() as logs:
            again = open_identity(disk, NodeConfig(node_id=1), random.Random(2))
        assert logs == []
        assert directory_id in (None, again.directory_id)
        if is_finished:
            assert again.cluster_id == "cluster"
            assert again.journal.state(METADATA_KEY) is not None
        loop.close()
        step += 1
    assert step > 15


def test_a_change_of_members_is_finished_by_the_next_leader() -> None:
    with running() as world:
        world.create_topic("foo", partitions=6)
        for partition in range(6):
            world.leader("foo", partition)
        world.kill(3)
        world.wipe(3)
        world.start(3)
        world.wait(lambda: world.nodes[3].cluster_id is not None)
        new = world.nodes[3].me.directory_id.bytes
        world.loop.run_for(0.01)
        world.kill(1)
        world.start(1)
        world.wait_ready()
        for partition in range(6):
            world.wait(lambda partition=partition: (3, new, 0) in world.voters("foo", partition))  # type: ignore[misc]
            world.wait(lambda partition=partition: len(world.voters("foo", partition)) == 3)  # type: ignore[misc]
        # An idle cluster looks at nothing.
        world.loop.run_for(1)
        assert not any(node.reconciler._marked for node in world.nodes.values())


def test_a_decision_larger_than_a_batch_is_cut_and_carried_out_whole() -> None:
    with running(size=1) as world:
        topics = [NewTopic(name=f"t{number}", num_partitions=4, replication_factor=1) for number in range(40)]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(metadata_service, "MAX_BATCH_BYTES", 1000)
            answer = world.ask(1, CreateTopics(topics=topics))
        assert all(topic.error_code == 0 for topic in answer.topics)
        assert len(world.nodes[1].metadata.image.topics) == 40
        replica = world.nodes[1].metadata.replica
        assert replica is not None
        sizes = [batch.header.size_bytes for batch in replica.log.batches(0)]
        assert max(sizes) < 1300 and len(sizes) > 10
