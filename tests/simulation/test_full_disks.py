"""Disks that are full to the last byte: no node ends, nothing is written meanwhile, and service is back when space is.

What a follower does whose disk is full is told in `test_scenarios.py`, a real full disk in `tests/integration`.
"""

from __future__ import annotations

import pytest

from broker.replication.replicas import QUIET_S
from protocol.api_keys import ApiKey
from protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from storage.disk import DiskFullError
from storage.errors import CorruptLogError
from storage.journal import FILL_BYTES, SPARE_BYTES
from storage.journal_records import Vote
from tests.broker.asking import ask
from tests.broker.world import World, running

MIN_VOTE_BYTES = 40
#: From the moment when there is space.
BACK_WITHIN_S = 2.0


def fill(world: World, *node_ids: int) -> dict[int, int]:
    """Returns how much was free."""
    # Until no log has padding any more: records would fit into it.
    world.loop.run_for(3 * QUIET_S)
    taken = {node_id: world.disks[node_id].free_bytes() for node_id in node_ids}
    for node_id, free_bytes in taken.items():
        world.disks[node_id].faults.capacity_bytes -= free_bytes
    return taken


def give_back(world: World, taken: dict[int, int]) -> None:
    for node_id, free_bytes in taken.items():
        world.disks[node_id].faults.capacity_bytes += free_bytes


def votes_written(world: World) -> int:
    return sum(node.journal.last_sequence for node in world.nodes.values())


def append_votes(world: World, node_id: int, size_bytes: int) -> None:
    """Votes of at least so many bytes, each the same as the one before."""
    node, replica = world.nodes[node_id], world.replica(node_id, "foo")

    def append() -> None:
        for _ in range(size_bytes // MIN_VOTE_BYTES):
            node.journal.append(Vote(replica.key, replica.group.term, None))
        node.rounds.start()

    world.processes[node_id].call(append)


def use_up_journal(world: World, node_id: int) -> None:
    """More votes than the journal has room for until it must grow."""
    append_votes(world, node_id, FILL_BYTES + SPARE_BYTES)


def test_leaders_that_cannot_write_their_row_neither_end_nor_campaign_again_and_again() -> None:
    with running() as world:
        world.create_topic("foo", 10)
        for partition in range(10):
            world.produce("foo", b"a", partition=partition)
        taken = fill(world, *world.ids)
        for partition in range(10):
            leader = world.leader("foo", partition)
            world.processes[leader].call(world.replica(leader, "foo", partition).driver.quorum_lost)
        world.loop.run_for(20)
        assert all(world.processes[node_id].alive for node_id in world.ids)
        before = votes_written(world)
        world.loop.run_for(60)
        assert votes_written(world) == before
        give_back(world, taken)
        since = world.loop.time()
        for partition in range(10):
            world.produce("foo", b"b", partition=partition)
        assert world.loop.time() - since < BACK_WITHIN_S


def test_a_node_that_is_elected_and_cannot_write_its_row_leads_no_more() -> None:
    """It had the log start of a leader to take over, and no leadership any more."""
    with running() as world:
        world.create_topic("foo")
        world.produce("foo", b"a")
        world.produce("foo", b"b")
        leader = world.leader("foo")
        cut = DeleteRecordsTopic(name="foo", partitions=[DeleteRecordsPartition(partition_index=0, offset=1)])
        request = DeleteRecordsRequest(topics=[cut], timeout_ms=1000)
        full = 1 + leader % 3
        taken = fill(world, full)
        successor, before = world.replica(full, "foo"), world.replica(leader, "foo")
        [follower] = [voter for voter in before.group.configuration.voters if voter.node_id == full]
        elected: list[int] = []
        world.loop.after_callback.append(lambda: elected.append(successor.group.term))
        ask(world, leader, ApiKey.DELETE_RECORDS, 2, request, DeleteRecordsResponse)
        world.processes[leader].call(before.driver.transfer_leadership, follower)
        world.loop.run_for(2)
        assert successor.group.term > min(elected), "it has voted for itself"
        assert world.processes[full].alive
        world.produce("foo", b"c")
        give_back(world, taken)
        world.wait_equal("foo")


def test_a_node_without_room_for_its_journal_waits_for_it() -> None:
    """It acknowledges nothing meanwhile, because its replies may be of a term that is only in the journal."""
    with running() as world:
        world.create_topic("foo")
        world.produce("foo", b"a")
        leader = world.leader("foo")
        full = 1 + leader % 3
        node = world.nodes[full]
        taken = fill(world, full)
        replica = world.replica(full, "foo")
        end_index = replica.group.persisted_end

        use_up_journal(world, full)
        world.loop.run_for(1)
        give_back(world, {full: 4096})  # for the log, and not for the journal
        world.produce("foo", b"b")
        world.loop.run_for(5)
        assert world.processes[full].alive and node.journal.is_dirty
        assert replica.group.persisted_end == end_index
        give_back(world, taken)
        world.wait(lambda: not node.journal.is_dirty, limit_s=BACK_WITHIN_S)
        world.wait_equal("foo")


def test_a_follower_without_room_for_its_journal_cuts_nothing_and_stays() -> None:
    """The lower end of its log must be in the journal first. The node ended here, and again at every restart."""
    with running() as world:
        world.create_topic("foo")
        world.produce("foo", b"a")
        world.wait_equal("foo")
        full = world.leader("foo")
        for other in world.ids:
            if other != full:
                world.network.cut(f"n{full}", f"n{other}")
                world.network.cut(f"n{other}", f"n{full}")
        world.append(full, "foo", b"of nobody else")
        world.wait(lambda: not world.replica(full, "foo").is_leader)
        world.produce("foo", b"b")
        replica = world.replica(full, "foo")
        end_index = replica.group.end_index
        taken = fill(world, full)
        use_up_journal(world, full)
        world.network.heal_all()
        world.loop.run_for(10)
        assert world.processes[full].alive and world.nodes[full].journal.is_dirty
        assert replica.group.end_index == replica.log.end_index == end_index
        assert replica.group.leader is not None, "it follows, although it cannot take the range"
        give_back(world, taken)
        world.wait(lambda: not world.nodes[full].journal.is_dirty, limit_s=BACK_WITHIN_S)
        since = world.loop.time()
        world.wait_equal("foo")
        assert world.loop.time() - since < BACK_WITHIN_S


def test_a_damaged_log_is_given_up_once_the_journal_has_room_to_say_so() -> None:
    """Nobody leads on the strength of it meanwhile."""
    with running() as world:
        world.create_topic("foo")
        world.produce("foo", b"a")
        world.wait_equal("foo")
        full = world.leader("foo")
        node, replica = world.nodes[full], world.replica(full, "foo")
        taken = fill(world, full)
        use_up_journal(world, full)
        error = CorruptLogError(replica.log.directory, 0, "found by a read")
        world.processes[full].call(node.replicas.log_corrupt, replica, error)
        world.loop.run_for(10)
        assert world.processes[full].alive and replica.is_open and not replica.is_leader
        assert node.journal.is_dirty, "whatever it would acknowledge waits, too"
        assert world.leader("foo") != full
        give_back(world, taken)
        world.wait(lambda: not replica.is_open, limit_s=BACK_WITHIN_S)
        world.wait(lambda: (full, node.me.directory_id.bytes, 1) in world.voters("foo"))
        world.wait_equal("foo")


def test_a_node_that_stops_without_room_for_its_journal_comes_to_an_end() -> None:
    with running() as world:
        world.create_topic("foo")
        fill(world, 1)
        use_up_journal(world, 1)
        world.loop.run_for(1)
        with pytest.raises(DiskFullError):
            world.stop(1)
