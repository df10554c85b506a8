"""The five bounds that a replica keeps in the journal: log start, MTRO, MXRO, MCCO and MXFO are one record."""

from __future__ import annotations

import pytest

from broker.replication.watermarks.bounds import DurableBounds
from storage.journal import Journal
from storage.journal_records import UNSET, Bounds, JournalRecord
from storage.lineage import LINEAGE_NAME
from storage.log_types import GroupKey
from tests.broker.world import World, running

#: So that a deletion leaves whole segments behind, and who was away is installed.
SMALL_SEGMENTS = {"log.segment.bytes": "1024", "log.retention.check.interval.ms": "500"}


def bounds_of(world: World, key: GroupKey, node_id: int = 1) -> Bounds | None:
    state = world.nodes[node_id].journal.state(key)
    assert state is not None
    return state.bounds


def append_to_journal(world: World, record: JournalRecord, node_id: int = 1) -> None:
    """As if the node had, in an earlier life: it does not run now."""
    assert node_id not in world.nodes
    journal = Journal.open(world.disks[node_id])
    journal.append(record)
    journal.close()


def delete_below(world: World, offset: int) -> None:
    """On the node that leads partition 0 of "foo"; waits until its journal says so, durably."""
    node_id = world.leader("foo")
    replica = world.replica(node_id, "foo")
    world.processes[node_id].call(replica.log_start.delete_records, offset)
    world.wait(lambda: replica.log_start_offset == offset)


def test_a_rise_of_the_log_start_leaves_the_other_bounds_alone() -> None:
    """Compaction will keep the other four: what a replica once reported must not be forgotten."""
    with running(size=1) as world:
        key = GroupKey(world.create_topic("foo", replication_factor=1).topic_id, 0)
        world.produce("foo", b"a", b"b", b"c", b"d")
        world.stop(1)
        append_to_journal(world, Bounds(key, 1, 2, 3, 4, 4))
        world.start_all()
        delete_below(world, 2)
        assert bounds_of(world, key) == Bounds(key, 2, 2, 3, 4, 4)
        world.kill(1, power=True)
        world.start_all()
        assert bounds_of(world, key) == Bounds(key, 2, 2, 3, 4, 4)
        assert world.replica(1, "foo").log.start_offset == 2


def test_an_installed_log_raises_the_log_start_and_leaves_the_other_bounds_alone() -> None:
    """It stores nothing below its start, so that what was said of the offsets below still holds."""
    with running(settings=SMALL_SEGMENTS) as world:
        key = GroupKey(world.create_topic("foo").topic_id, 0)
        world.produce("foo", b"a", b"b", b"c", b"d")
        world.wait_equal("foo")
        world.stop(3)
        append_to_journal(world, Bounds(key, 1, 2, 3, 4, 4), 3)
        for _ in range(20):
            world.produce("foo", b"a" * 400)
        delete_below(world, 20)
        world.loop.run_for(2)
        assert world.replica(world.leader("foo"), "foo").group.install_offset > 4
        world.start(3)
        world.wait_ready()
        world.wait_equal("foo")
        world.wait(lambda: world.replica(3, "foo").log.start_offset == 20)
        assert bounds_of(world, key, 3) == Bounds(key, 20, 2, 3, 4, 4)
        world.kill(3, power=True)
        world.start(3)
        world.wait_ready()
        assert bounds_of(world, key, 3) == Bounds(key, 20, 2, 3, 4, 4)


def test_what_may_be_removed_does_not_rise_with_a_log_start_inside_a_segment() -> None:
    """What lies below it in the segment is still copied by a new replica. Data without their marker would keep its
    readers of committed data waiting for ever."""
    with running() as world:
        key = GroupKey(world.create_topic("foo", configs={"cleanup.policy": "compact,delete"}).topic_id, 0)
        world.produce("foo", b"a", b"b", b"c", b"d", key=b"k")
        delete_below(world, 2)
        leader = world.replica(world.leader("foo"), "foo")
        followers = [v for v in leader.group.configuration.voters if v != leader.group.self_id]

        def have_reported() -> bool:
            return all(leader.bounds.report_of(follower) is not None for follower in followers)

        world.wait(have_reported)
        assert leader.log.start_offset == 2 and leader.log.install_offset == 0
        assert (leader.bounds.mtro, leader.bounds.mxro) == (UNSET, UNSET)
        for node_id in world.ids:
            bounds = bounds_of(world, key, node_id)
            assert bounds is None or bounds.mxro == UNSET


def test_a_discarded_log_takes_its_bounds_along() -> None:
    """The log of the next incarnation has been neither compacted nor cut."""
    with running() as world:
        key = GroupKey(world.create_topic("foo").topic_id, 0)
        world.produce("foo", b"a", b"b", b"c", b"d")
        world.wait_equal("foo")
        world.stop(3)
        append_to_journal(world, Bounds(key, 1, 2, 3, 4, 4), 3)
        world.disks[3].unlink(f"/n3/foo-0/{LINEAGE_NAME}")
        world.start(3)
        world.wait_ready()
        world.wait_equal("foo")
        state = world.nodes[3].journal.state(key)
        assert state is not None and (state.incarnation, state.bounds) == (1, Bounds(key, copied_in_term=0))
        delete_below(world, 2)
        world.wait(lambda: world.replica(3, "foo").log.start_offset == 2)
        assert bounds_of(world, key, 3) == Bounds(key, 2, copied_in_term=0)


def test_a_log_start_only_rises() -> None:
    with running(size=1) as world:
        key = GroupKey(world.create_topic("foo", replication_factor=1).topic_id, 0)
        bounds = DurableBounds(world.nodes[1].journal)
        bounds.raise_log_start(key, 5)
        for offset in (4, 5):
            with pytest.raises(AssertionError):
                bounds.raise_log_start(key, offset)
        assert bounds.of(key).log_start == 5
