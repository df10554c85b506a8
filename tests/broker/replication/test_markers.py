"""Transaction markers in a replicated partition: what leader, followers and reopened replicas know afterwards."""

from __future__ import annotations

import pytest

from broker.replication.message_checks import check_markers
from broker.replication.ranges import Batches
from broker.replication.replica import Replica
from protocol.errors import ErrorCode, KafkaError, ProtocolError
from protocol.records.batch import BatchHeader, parse_header
from protocol.records.builder import NewRecord, build_batch
from protocol.records.control import Marker, build_marker
from storage.aborted_index import AbortedTransaction
from storage.producer_snapshot import encode_snapshot
from tests.broker.world import World, running

PRODUCER_ID = 77


def _write(
    world: World, node_id: int, sequence: int, *, producer_id: int = PRODUCER_ID, epoch: int = 0
) -> int:
    """Append a transactional batch of one record at the leader. Returns its offset."""
    batch = build_batch(
        [NewRecord(None, b"x", 0)],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=True,
    )
    replica = world.replica(node_id, "foo")
    base_offset, _ = world.processes[node_id].call(replica.append, parse_header(batch), batch)
    return int(base_offset)


def _end(
    world: World, node_id: int, marker: Marker, *, producer_id: int = PRODUCER_ID, epoch: int = 0
) -> int:
    """Append a marker at the leader. Returns the end offset."""
    replica = world.replica(node_id, "foo")
    return int(world.processes[node_id].call(replica.append_marker, producer_id, epoch, marker))


def _commit(world: World) -> None:
    """Wait until every replica that runs knows that all is committed."""
    end_offset = world.replica(world.leader("foo"), "foo").next_offset
    replicas = [world.replica(node_id, "foo") for node_id in world.nodes]
    world.wait(lambda: all(replica.high_watermark == end_offset for replica in replicas))


def _state(replica: Replica) -> bytes:
    return encode_snapshot(replica.producers, replica.log.active_aborted)


def test_leader_and_followers_and_reopened_replicas_have_equal_state() -> None:
    with running() as world:
        world.create_topic("foo")
        leader = world.leader("foo")
        first = _write(world, leader, 0)
        _end(world, leader, Marker(False, 5))
        _write(world, leader, 1)
        _end(world, leader, Marker(True, 6), epoch=1)
        opened = _write(world, leader, 0, producer_id=78)
        _commit(world)
        replicas = [world.replica(node_id, "foo") for node_id in world.ids]
        assert {_state(replica) for replica in replicas} == {_state(replicas[0])}
        entry = replicas[0].producers.entries[PRODUCER_ID]
        assert (entry.epoch, entry.coordinator_epoch, entry.last_sequence) == (1, 6, -1)
        assert {replica.last_stable_offset for replica in replicas} == {opened}
        aborted = [AbortedTransaction(PRODUCER_ID, first, first + 1, first + 2)]
        before = _state(replicas[0])
        for node_id in world.ids:
            world.stop(node_id)
        world.start_all()
        world.leader("foo")
        for node_id in world.ids:
            replica = world.replica(node_id, "foo")
            world.wait(lambda replica=replica: replica.last_stable_offset == opened)  # type: ignore[misc]
            assert _state(replica) == before
            assert replica.log.aborted_between(0, opened) == aborted


def test_a_marker_of_an_older_coordinator_or_of_an_older_producer_epoch_is_refused_everywhere() -> None:
    with running() as world:
        world.create_topic("foo")
        leader = world.leader("foo")
        _write(world, leader, 0, epoch=3)
        _end(world, leader, Marker(True, 6), epoch=3)
        _commit(world)
        world.kill(leader)
        leader = world.leader("foo")
        end_offset = world.replica(leader, "foo").next_offset
        for epoch, coordinator_epoch, error in (
            (3, 5, ErrorCode.TRANSACTION_COORDINATOR_FENCED),
            (2, 6, ErrorCode.INVALID_PRODUCER_EPOCH),
        ):
            with pytest.raises(KafkaError) as raised:
                _end(world, leader, Marker(False, coordinator_epoch), epoch=epoch)
            assert raised.value.code == error
        assert world.replica(leader, "foo").next_offset == end_offset
        follower = next(node_id for node_id in world.nodes if node_id != leader)
        with pytest.raises(KafkaError) as raised:
            _end(world, follower, Marker(False, 7))
        assert raised.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_the_last_stable_offset_waits_until_the_marker_is_committed() -> None:
    with running() as world:
        world.create_topic("foo")
        leader = world.leader("foo")
        replica = world.replica(leader, "foo")
        first = _write(world, leader, 0)
        _commit(world)
        assert replica.last_stable_offset == first < replica.high_watermark
        followers = [node_id for node_id in world.ids if node_id != leader]
        for follower in followers:
            world.kill(follower)
        end_offset = _end(world, leader, Marker(True, 0))
        world.loop.run_for(0.2)
        assert replica.last_stable_offset == first, "another leader may not have the marker"
        for follower in followers:
            world.start(follower)
        world.wait_ready(*followers)
        world.leader("foo")
        _commit(world)
        assert {world.replica(node_id, "foo").last_stable_offset for node_id in world.ids} in (
            {end_offset},
            {first},  # the one without the marker was elected
        )


def _range(batch: bytearray) -> Batches:
    header: BatchHeader = parse_header(batch)
    return Batches([header], [memoryview(batch)])


def test_a_peer_sends_only_markers_that_can_be_read() -> None:
    check_markers(_range(build_marker(1, 0, Marker(True, 3), 0)))
    for records in (
        [NewRecord(b"", b"", 0)],
        [NewRecord(b"\0\0\0\1", b"\0\0", 0)],
        [NewRecord(b"\0\0\0\1", None, 0)],
        [NewRecord(b"\0\0\0\1", b"\0" * 6, 0), NewRecord(b"\0\0\0\1", b"\0" * 6, 0)],
    ):
        batch = build_batch(records, producer_id=1, producer_epoch=0, is_control=True, is_transactional=True)
        with pytest.raises(ProtocolError):
            check_markers(_range(batch))
