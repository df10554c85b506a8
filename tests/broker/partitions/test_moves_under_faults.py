"""Partitions that move while links are cut, nodes die and messages are late: nothing acknowledged goes, nobody ends."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from broker.replication.replica import Replica
from protocol.controller.replicas import FinishReassignment, ReassignedPartition, ReassignPartitions
from protocol.controller.request import Request
from protocol.errors import ErrorCode
from protocol.records.batch import iter_batches
from protocol.records.builder import NewRecord, build_batch
from tests.broker.partitions.test_reassignment import create, nodes_of, reassign
from tests.broker.world import World, running


class _Producer:
    """Waits with acks=all, and writes down what it is told."""

    def __init__(self) -> None:
        self.answers: list[ErrorCode] = []

    def partition_done(self, slot: int, error: ErrorCode) -> None:
        self.answers.append(error)


def _reassign(world: World, controller: int, node_id: int) -> None:
    """To this one node, asked of the controller itself: others may be cut off from it."""
    target = ReassignedPartition(topic="foo", partition=0, node_ids=[node_id])
    answer = world.ask(controller, ReassignPartitions(partitions=[target]))
    assert answer.partitions[0].error_code == ErrorCode.NONE, answer


def _hold_reports(world: World, node_id: int) -> Callable[[], None]:
    """What the node tells the controller of finished moves is on its way until the returned function is called."""
    client = world.nodes[node_id].controller
    call, held = client.call, list[Callable[[], None]]()

    def hold(request: Request[Any], done: Callable[[Any], None]) -> None:
        if isinstance(request, FinishReassignment):
            held.append(partial(call, request, done))
        else:
            call(request, done)

    def release() -> None:
        client.call = call  # type: ignore[method-assign]
        for late in held:
            world.processes[node_id].call(late)

    client.call = hold  # type: ignore[method-assign, assignment]
    return release


def test_a_late_word_that_a_move_is_over_deletes_nobody_elses_log() -> None:
    """a says that its members are the target, and is not heard. The target changes, the members follow, the target
    changes again; now a is heard."""
    with running(5) as world:
        world.loop.run_for(1)
        controller = world.nodes[1].leaders.controller_id()
        a, b = [node_id for node_id in world.ids if node_id != controller][:2]
        create(world, "foo", [a])
        key = world.replica(a, "foo").key
        release_a, release_b = _hold_reports(world, a), _hold_reports(world, b)
        _reassign(world, controller, b)
        _reassign(world, controller, a)
        world.wait(lambda: key in world.nodes[a].reconciler._reporting, 3)
        assert nodes_of(world, "foo") == [a]
        _reassign(world, controller, b)
        world.wait(lambda: nodes_of(world, "foo") == [b], 3)
        world.wait(lambda: world.replica(b, "foo").is_serving)
        world.produce("foo", b"acknowledged")
        assert b"acknowledged" in world.content(b, "foo")
        world.network.partition([f"n{a}"], [f"n{b}"])
        _reassign(world, controller, a)
        world.loop.run_for(0.2)
        assert world.disks[b].exists(f"/n{b}/foo-0")
        release_a()
        world.loop.run_for(5)
        world.network.heal_all()
        release_b()
        world.wait(lambda: nodes_of(world, "foo") == [a])
        assert b"acknowledged" in world.content(a, "foo")


def test_the_only_log_is_not_discarded_while_it_moves() -> None:
    """Whom it moves to has nothing yet."""
    with running() as world:
        world.loop.run_for(1)
        controller = world.nodes[1].leaders.controller_id()
        a, b = (node_id for node_id in world.ids if node_id != controller)
        create(world, "foo", [a])
        world.produce("foo", b"a" * 500)
        world.loop.run_for(2)
        world.network.partition([f"n{a}"], [f"n{b}"])
        _reassign(world, controller, b)
        world.loop.run_for(0.2)
        world.kill(a)
        path = f"/n{a}/foo-0/00000000000000000000.log"
        world.disks[a].flip_bits(path, 100, 200, count=5)
        damaged = world.disks[a].durable_contents(path)
        world.start(a)
        world.wait_ready(a)
        world.loop.run_for(1)
        assert world.disks[a].exists(path) and world.disks[a].durable_contents(path) == damaged


def _move_to_two_that_die(world: World) -> None:
    """From 1, 2 and 3 to 4, 5 and 6: 6 is not there, and 4 and 5 die as soon as they vote."""
    create(world, "foo", [1, 2, 3])
    world.kill(6)
    reassign(world, "foo", 4, 5, 6)
    world.wait(lambda: nodes_of(world, "foo") == [1, 2, 3, 4, 5])
    world.kill(4)
    world.kill(5)
    world.loop.run_for(3)


def test_members_that_died_meanwhile_do_not_take_the_majority_away() -> None:
    """4 and 5 vote already and are gone when 6 comes: {1, 4, 5, 6} could decide nothing, and 1, 2 and 3 are there."""
    with running(7) as world:
        _move_to_two_that_die(world)
        world.produce("foo", b"1, 2 and 3 are there")
        world.start(6)
        world.wait_ready(6)
        world.loop.run_for(20)
        world.produce("foo", b"and 6")
        world.start(4)
        world.start(5)
        world.wait(lambda: nodes_of(world, "foo") == [4, 5, 6])


def test_a_leader_that_is_moved_away_while_clients_wait_for_all_replicas_lives_on() -> None:
    with running(4) as world:
        world.create_topic("foo", configs={"min.insync.replicas": "3"})
        world.produce("foo", b"a")
        leader = world.leader("foo")
        held = [node_id for node_id in world.ids if ("foo", 0) in world.nodes[node_id].replicas.by_name]
        (other,) = set(world.ids) - set(held)
        replica = world.replica(leader, "foo")
        producer = _Producer()
        asked = 0

        def produce() -> None:
            batch = build_batch([NewRecord(None, b"x", world.nodes[leader].clock.now_ms())])
            header = next(iter_batches(memoryview(batch)))[1]
            replica.waits.add_commit(replica.append(header, batch)[1], producer, 0)

        reassign(world, "foo", *[node_id for node_id in held if node_id != leader], other)
        while replica.is_serving:
            if replica.group.can_propose:
                world.processes[leader].call(produce)
                asked += 1
            world.loop.run_for(0.0005)
        world.loop.run_for(1)
        assert len(producer.answers) == asked > 0
        assert world.processes[leader].alive


def test_a_fourth_voter_does_not_answer_for_a_third_copy() -> None:
    """Three copies are a majority of the four voters. What is committed by then has two, of three voters."""
    with running(4) as world:
        world.create_topic("foo", configs={"min.insync.replicas": "3"})
        world.produce("foo", b"a")
        leader = world.leader("foo")
        replica = world.replica(leader, "foo")
        group = replica.group
        late = next(node_id for node_id in nodes_of(world, "foo") if node_id != leader)
        (fourth,) = set(world.ids) - set(nodes_of(world, "foo"))
        reassign(world, "foo", *nodes_of(world, "foo"), fourth)
        world.wait(
            lambda: any(group.is_caught_up(x, world.loop.time(), 1) for x in group.configuration.learners)
        )
        world.loop.pause(world.processes[fourth])
        world.loop.pause(world.processes[late])
        _, end_offset = world.append(leader, "foo", b"b")
        producer = _Producer()
        world.processes[leader].call(replica.waits.add_commit, end_offset, producer, 0)
        world.wait(lambda: replica.high_watermark == end_offset)
        assert len(group.configuration.voters) == 3 and producer.answers == []
        world.wait(lambda: len(group.configuration.voters) == 4)
        world.wait(lambda: group.durable_end(2) == group.end_index)
        assert producer.answers == []
        world.loop.resume(world.processes[late])
        world.wait(lambda: bool(producer.answers))
        assert producer.answers == [ErrorCode.NONE]
        assert world.replica(late, "foo").durable_offset >= end_offset
        world.loop.resume(world.processes[fourth])


def test_a_leader_without_a_majority_of_its_new_members_steps_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """As above, were it not prevented: an echo that has lapsed already does not lapse again."""
    monkeypatch.setattr(Replica, "may_become", lambda self, configuration: True)
    with running(7) as world:
        _move_to_two_that_die(world)
        world.start(6)
        world.wait_ready(6)
        world.loop.run_for(20)
        replicas = [world.nodes[node_id].replicas.by_name.get(("foo", 0)) for node_id in (1, 2, 3, 6)]
        assert not any(replica is not None and replica.is_leader for replica in replicas)


def test_a_leader_whose_other_voter_lost_its_disk_steps_down() -> None:
    """It is back before its echo lapses, and is nobody now."""
    with running() as world:
        world.create_topic("foo")
        world.produce("foo", b"a")
        world.wait_equal("foo")
        leader = world.leader("foo")
        gone, wiped = [node_id for node_id in world.ids if node_id != leader]
        world.kill(gone)
        world.loop.run_for(3)
        replica = world.replica(leader, "foo")
        assert replica.is_leader
        world.kill(wiped)
        world.wipe(wiped)
        world.start(wiped)
        world.wait(lambda: not replica.is_leader, 3)
