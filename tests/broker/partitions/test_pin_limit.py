"""varve.compaction.max.pin.ms: a member that is away keeps deletions from going only for so long."""

from __future__ import annotations

import pytest

from storage.journal_records import UNSET
from tests.broker.compacting import pass_over
from tests.broker.world import World, running

COMPACTED = {"cleanup.policy": "compact", "delete.retention.ms": "100"}
LIMIT_MS = 5_000


def compact(world: World, *node_ids: int) -> None:
    for node_id in node_ids:
        pass_over(world, node_id)


def deletions(world: World, node_id: int) -> int:
    return world.content(node_id, "table").count(b"gone")


@pytest.mark.parametrize(("replicas", "members"), [(4, 4), (5, 4)])
def test_no_more_are_left_out_than_leaves_the_majority_as_large(replicas: int, members: int) -> None:
    with running(size=replicas, settings={"varve.compaction.max.pin.ms": str(LIMIT_MS)}) as world:
        world.create_topic("table", replication_factor=replicas, configs=COMPACTED)
        world.produce("table", b"value", key=b"gone")
        world.wait_equal("table")
        leader = world.leader("table")
        others = [node_id for node_id in world.nodes if node_id != leader]
        world.kill(others[0])
        world.produce("table", None, key=b"gone")
        world.produce("table", b"value", key=b"stays")
        compact(world, leader, *others[2:])  # the second does not keep up, either
        if members < replicas:
            world.wait(lambda: len(world.replica(leader, "table").group.configuration.voters) == members)
        if replicas == 5:
            world.kill(others[1])
        world.loop.run_for(3 * LIMIT_MS / 1000)
        assert len(world.voters("table")) == members
        assert world.leader("table") == leader


def absent_member(world: World) -> tuple[int, int, int]:
    """A leader, another member, and one that is away and holds a value that was deleted meanwhile; the others are
    compacted beyond that."""
    world.create_topic("table", replication_factor=3, configs=COMPACTED)
    world.produce("table", b"value", key=b"gone")
    world.wait_equal("table")
    leader = world.leader("table")
    other, away = (node_id for node_id in world.nodes if node_id != leader)
    world.kill(away)
    world.produce("table", None, key=b"gone")
    world.produce("table", b"value", key=b"stays")
    compact(world, leader, other)
    return leader, other, away


def test_without_a_limit_the_deletion_stays() -> None:
    with running(size=3) as world:
        leader, other, _ = absent_member(world)
        world.loop.run_for(60)
        compact(world, leader, other)
        assert deletions(world, leader) == 1
        assert len(world.voters("table")) == 3


def test_with_a_limit_the_member_is_left_out_and_begins_anew_when_it_is_back() -> None:
    with running(size=3, settings={"varve.compaction.max.pin.ms": str(LIMIT_MS)}) as world:
        leader, other, away = absent_member(world)
        world.loop.run_for(LIMIT_MS / 1000 - 2)
        assert len(world.voters("table")) == 3
        world.wait(lambda: len(world.replica(leader, "table").group.configuration.voters) == 2)
        world.wait(lambda: world.replica(leader, "table").bounds.mtro != UNSET)
        world.loop.run_for(1)
        compact(world, leader, other)
        assert deletions(world, leader) == 0
        world.start(away)
        world.wait_ready(away)
        world.wait(lambda: len(world.replica(leader, "table").group.configuration.voters) == 3)
        world.wait_equal("table")
        assert deletions(world, away) == 0
        assert world.replica(away, "table").group.self_id.incarnation > 0


def test_who_is_back_in_time_stays_a_member() -> None:
    with running(size=3, settings={"varve.compaction.max.pin.ms": str(LIMIT_MS)}) as world:
        _, _, away = absent_member(world)
        world.loop.run_for(LIMIT_MS / 1000 - 2)
        world.start(away)
        world.wait_ready(away)
        compact(world, away)
        world.loop.run_for(2 * LIMIT_MS / 1000)
        assert len(world.voters("table")) == 3
        assert world.replica(away, "table").group.self_id.incarnation == 0


def test_the_next_leader_leaves_it_out_as_well() -> None:
    with running(size=3, settings={"varve.compaction.max.pin.ms": str(LIMIT_MS)}) as world:
        leader, _, _ = absent_member(world)
        world.wait(lambda: len(world.replica(leader, "table").group.configuration.voters) == 2)
        world.kill(leader)
        world.start(leader)
        world.wait_ready(leader)
        world.leader("table")
        world.loop.run_for(10)
        assert len(world.voters("table")) == 2


def test_a_limit_may_be_set_while_a_member_is_away() -> None:
    with running(size=3) as world:
        leader, _, _ = absent_member(world)
        world.loop.run_for(LIMIT_MS / 1000)
        assert len(world.voters("table")) == 3
        for node in world.nodes.values():
            node.settings.change({"varve.compaction.max.pin.ms": str(LIMIT_MS)}, {})
        world.wait(lambda: len(world.replica(leader, "table").group.configuration.voters) == 2)
