"""What a leader takes it sends to its followers before it writes it, and without reading it back from its log; what
followers have written, nobody reads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from broker.replication.ranges import MAX_APPEND_BYTES
from protocol.errors import ErrorCode
from protocol.records.batch import parse_header
from protocol.records.builder import NewRecord, build_batch
from storage.disk import BLOCK_BYTES
from storage.log import Log
from tests.broker.world import World, running

PAUSE_S = 0.001


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Where ranges were read from a log, in order."""
    starts: list[int] = []
    read_range = Log.read_range

    def noted(log: Log, start_index: int, *arguments: Any) -> Any:
        starts.append(start_index)
        return read_range(log, start_index, *arguments)

    monkeypatch.setattr(Log, "read_range", noted)
    yield starts


def _produce(
    world: World, leader: int, batches: int, value_bytes: int, at_a_time: int = 1, pause_s: float = PAUSE_S
) -> None:
    replica = world.replica(leader, "foo")

    def append() -> None:
        for _ in range(at_a_time):
            batch = build_batch([NewRecord(None, b"x" * value_bytes, 1)] * 3)
            replica.append(parse_header(batch), batch)

    for number in range(batches // at_a_time):
        world.loop.call_later(number * pause_s, world.processes[leader].call, append)
    world.loop.run_for(batches // at_a_time * pause_s + 0.5)


@pytest.mark.parametrize(
    ("value_bytes", "at_a_time", "pause_s"),
    [(100, 1, PAUSE_S), (20_000, 2, PAUSE_S), (120_000, 4, 20 * PAUSE_S)],
)
def test_what_is_batched_and_what_is_large_is_sent_from_memory(
    reads: list[int], value_bytes: int, at_a_time: int, pause_s: float
) -> None:
    """Small appends are batched for the deferred follower; 1.4 MB in one turn take two ranges.

    No link stalls with this seed: that makes its follower need what is not kept any more."""
    with running(seed=3) as world:
        world.create_topic("foo")
        leader = world.leader("foo")
        world.wait_equal("foo")
        _produce(world, leader, 4, 100)  # the deferred follower is chosen
        reads.clear()
        _produce(world, leader, 60, value_bytes, at_a_time, pause_s)
        world.wait_equal("foo")
        assert world.replica(leader, "foo").log.end_offset == 3 * 64
        assert not reads


def test_what_is_kept_for_a_deferred_follower_is_bounded() -> None:
    with running() as world:
        world.create_topic("foo")
        leader = world.leader("foo")
        world.wait_equal("foo")
        kept = world.replica(leader, "foo")._sender
        largest = 0

        def look() -> None:
            nonlocal largest
            largest = max(largest, sum(part.size_bytes for part in kept._kept))
            world.loop.call_later(PAUSE_S / 4, look)

        look()
        _produce(world, leader, 60, 120_000, 2)
        assert 0 < largest <= 3 * 2 * 120_200 + MAX_APPEND_BYTES
        assert not kept._kept, "nobody waits for it any more"


@pytest.mark.parametrize(
    "call",
    [
        pytest.param("start_writeback", id="their disks begin before the flush"),
        pytest.param("drop_cached", id="they leave the page cache to the leader"),
    ],
)
def test_only_followers_ask_it_of_their_logs(monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    asked: set[str] = set()
    monkeypatch.setattr(Log, call, lambda log: asked.add(log.directory))
    with running() as world:
        world.create_topic("foo")
        leader = world.leader("foo")
        world.wait_equal("foo")
        asked.clear()  # by those that did not lead yet
        _produce(world, leader, 4, 100)
        world.wait_equal("foo")
        logs = {node: world.replica(node, "foo").log.directory for node in world.processes}
        assert {node for node, directory in logs.items() if directory in asked} == set(logs) - {leader}


class _Answer:
    """Of one record that waits to be committed. Implements `broker.replication.waits.Acknowledged`."""

    def __init__(self, world: World, leader: int, value: bytes) -> None:
        self.error: ErrorCode | None = None
        _, self.end_offset = world.append(leader, "foo", value)
        replica = world.replica(leader, "foo")
        world.processes[leader].call(replica.waits.add_commit, self.end_offset, self, 0)
        world.wait(lambda: self.error is not None)

    def partition_done(self, slot: int, error_code: ErrorCode) -> None:
        self.error = error_code


def test_a_leader_whose_disk_takes_nothing_leads_no_longer() -> None:
    """Its followers had the record before it could not write it. In its term nothing else may stand there."""
    with running() as world:
        world.create_topic("foo")
        world.produce("foo", b"first")
        world.wait_equal("foo")
        leader = world.leader("foo")
        replica, disk = world.replica(leader, "foo"), world.disks[leader]
        followers = [world.replica(node_id, "foo") for node_id in world.ids if node_id != leader]
        term, room = replica.leader_epoch, disk.free_bytes()
        disk.faults.capacity_bytes -= room
        answer = _Answer(world, leader, b"second" + bytes(BLOCK_BYTES))
        assert answer.error is ErrorCode.KAFKA_STORAGE_ERROR
        assert not replica.is_leader and replica.leader_epoch == term
        assert replica.next_offset == replica.log.end_offset == answer.end_offset - 1
        world.wait(lambda: any(f.log.end_offset == answer.end_offset for f in followers), limit_s=0.1)
        disk.faults.capacity_bytes += room
        world.produce("foo", b"third")
        assert world.replica(world.leader("foo"), "foo").leader_epoch > term
        world.wait_equal("foo")


def test_a_leader_whom_nobody_heard_leads_on_when_there_is_room_again() -> None:
    with running() as world:
        world.create_topic("foo", replication_factor=1)
        world.produce("foo", b"first")
        leader = world.leader("foo")
        replica, disk = world.replica(leader, "foo"), world.disks[leader]
        term, room = replica.leader_epoch, disk.free_bytes()
        disk.faults.capacity_bytes -= room
        answer = _Answer(world, leader, b"second" + bytes(BLOCK_BYTES))
        assert answer.error is ErrorCode.KAFKA_STORAGE_ERROR
        disk.faults.capacity_bytes += room
        assert world.produce("foo", b"third") == answer.end_offset - 1
        assert (replica.is_leader, replica.leader_epoch) == (True, term)
