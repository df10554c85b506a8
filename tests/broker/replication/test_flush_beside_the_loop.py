"""Who flushes at once, its loop asleep meanwhile, and who does not. The disk does it where it may."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from broker.metadata.ids import METADATA_TOPIC_ID
from protocol.errors import ErrorCode
from protocol.peer import AppendReply, PeerMessage
from tests.broker.world import World, running
from tests.simulator.clock import LOOK_S


def _flushes_at_once(world: World, node_id: int) -> bool:
    """Whether the next write to the replica's log is durable at once: no time passes but by a look at the clock, when
    the round begins and when it ends."""
    replica = world.replica(node_id, "foo")
    before = replica.log.end_index
    world.wait(lambda: replica.log.end_index > before)
    written_at_s = world.loop.time()
    world.wait(lambda: replica.group.persisted_end == replica.log.end_index)
    return world.loop.time() - written_at_s < 2.5 * LOOK_S


class _Client:
    def partition_done(self, slot: int, error: ErrorCode) -> None:
        assert error == ErrorCode.NONE


@pytest.mark.parametrize(
    ("replication_factor", "is_acks_1", "is_at_once"), [(3, False, False), (3, True, True), (1, False, True)]
)
def test_a_leader_flushes_at_once_only_what_no_other_log_answers_for(
    replication_factor: int, is_acks_1: bool, is_at_once: bool
) -> None:
    """Otherwise it hears its followers, and the one it has woken need not wait for this processor."""
    with running() as world:
        world.create_topic("foo", replication_factor=replication_factor)
        leader = world.leader("foo")
        world.produce("foo", b"first")
        for disk in world.disks.values():
            disk.faults.at_once_rate = 1.0
        _, end_offset = world.append(leader, "foo", b"second")
        if is_acks_1:
            replica = world.replica(leader, "foo")
            world.processes[leader].call(replica.waits.add_flush, end_offset, _Client(), 0)
        assert _flushes_at_once(world, leader) == is_at_once


@pytest.mark.parametrize("is_at_once", [True, False])
def test_a_follower_flushes_at_once_and_answers_once(is_at_once: bool) -> None:
    """It sends nothing before its flush, and has prepared its reply by then."""
    with running() as world:
        world.create_topic("foo")
        leader = world.leader("foo")
        world.produce("foo", b"first")
        world.wait_equal("foo")
        for disk in world.disks.values():
            disk.faults.at_once_rate = 1.0 if is_at_once else 0.0
        follower = leader % 3 + 1
        prepared, sent = _answers(world, follower)
        # While a round is under way, for what the nodes record now and then, the next one waits for its end.
        world.wait(lambda: world.nodes[follower].rounds.is_idle)
        world.append(leader, "foo", b"second")
        assert _flushes_at_once(world, follower) == is_at_once
        world.wait_equal("foo")
        end_index = world.replica(leader, "foo").log.end_index
        assert [answer.match_end for answer in (prepared if is_at_once else sent)] == [end_index]
        assert not (sent if is_at_once else prepared)


def _answers(world: World, node_id: int) -> tuple[list[AppendReply], list[AppendReply]]:
    """What the node answers to its leaders from now on: prepared before a flush, and sent without."""
    node = world.nodes[node_id]
    prepared: list[AppendReply] = []
    sent: list[AppendReply] = []
    prepare_to, send_to = node.cluster.prepare_to, node.cluster.send_to

    def prepare(directory: tuple[int, bytes], message: PeerMessage) -> Callable[[], None] | None:
        assert isinstance(message, AppendReply)
        prepared.append(message)
        return prepare_to(directory, message)

    def send(directory: tuple[int, bytes], message: PeerMessage) -> None:
        if isinstance(message, AppendReply) and message.topic_id != METADATA_TOPIC_ID:
            sent.append(message)
        send_to(directory, message)

    node.cluster.prepare_to, node.cluster.send_to = prepare, send  # type: ignore[method-assign]
    return prepared, sent
