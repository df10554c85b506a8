"""What a leader has just written, it sends to its followers without reading it back from its log; what followers have
written, nobody reads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from broker.replication.ranges import MAX_APPEND_BYTES
from protocol.records.batch import iter_batches
from protocol.records.builder import NewRecord, build_batch
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
            replica.append(next(iter_batches(memoryview(batch)))[1], batch)

    for number in range(batches // at_a_time):
        world.loop.call_later(number * pause_s, world.processes[leader].call, append)
    world.loop.run_for(batches // at_a_time * pause_s + 0.5)


@pytest.mark.parametrize(
    ("value_bytes", "at_a_time", "pause_s"),
    [(100, 1, PAUSE_S), (20_000, 2, PAUSE_S), (120_000, 4, 20 * PAUSE_S)],
)
def test_what_lingers_and_what_is_large_is_sent_from_memory(
    reads: list[int], value_bytes: int, at_a_time: int, pause_s: float
) -> None:
    """Small appends gather for the follower that the majority does not need; 1.4 MB in one turn take two ranges."""
    with running() as world:
        world.create_topic("foo")
        leader = world.leader("foo")
        world.wait_equal("foo")
        _produce(world, leader, 4, 100)  # who lingers is chosen
        reads.clear()
        _produce(world, leader, 60, value_bytes, at_a_time, pause_s)
        world.wait_equal("foo")
        assert world.replica(leader, "foo").log.end_offset == 3 * 64
        assert not reads


def test_what_is_kept_for_a_follower_that_lingers_is_bounded() -> None:
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
