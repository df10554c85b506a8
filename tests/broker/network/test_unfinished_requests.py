"""Clients that send large requests in part, or all at once, cost other clients neither memory nor service."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import structlog

from protocol.api_keys import ApiKey
from protocol.codec import encode
from protocol.errors import ErrorCode
from protocol.headers import RequestHeader, encode_request_header
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from protocol.records.builder import NewRecord, build_batch
from protocol.schema import Message
from tests.broker.asking import ask
from tests.broker.network.counting_client import CountingClient, connected
from tests.broker.world import World, running
from tests.simulator import clock

LIMIT_BYTES = 8 << 20
HALF_BYTES = LIMIT_BYTES // 2


@contextmanager
def _world(size: int = 1) -> Iterator[World]:
    settings = {"queued.max.request.bytes": str(LIMIT_BYTES), "message.max.bytes": "1000000"}
    with running(size=size, settings=settings) as world:
        world.create_topic("foo", replication_factor=size)
        world.leader("foo")
        yield world


def _connect(world: World, data: bytes = b"", node_id: int = 1) -> CountingClient:
    client = connected(world, node_id)
    if data:
        client.transport.write(data)
    return client


def _framed(key: ApiKey, version: int, body: Message) -> bytes:
    frame = encode_request_header(RequestHeader(key, version, 1, None)) + encode(body, version)
    return struct.pack(">i", len(frame)) + frame


def _part_of_a_frame(announced_bytes: int, size_bytes: int) -> bytes:
    return struct.pack(">i", announced_bytes) + bytes(size_bytes)


def _produce(size_bytes: int) -> ProduceRequest:
    batch = build_batch([NewRecord(None, b"x" * size_bytes, 0)])
    partition = PartitionProduceData(index=0, records=memoryview(batch))
    return ProduceRequest(
        acks=-1, timeout_ms=5000, topic_data=[TopicProduceData(name="foo", partition_data=[partition])]
    )


def _produces(world: World, size_bytes: int, node_id: int = 1) -> None:
    answer = ask(world, node_id, ApiKey.PRODUCE, 9, _produce(size_bytes), ProduceResponse)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE


def _arriving_bytes(world: World) -> int:
    return world.nodes[1].connections.memory.arriving_bytes


def test_good_clients_are_served_while_others_hold_unfinished_requests() -> None:
    with _world() as world, structlog.testing.capture_logs() as logged:
        clients = []
        for _ in range(60):
            clients.append(_connect(world, _part_of_a_frame(HALF_BYTES - 100, 70_000)))
            if len(clients) % 6 == 0:
                _produces(world, 600_000)
            assert _arriving_bytes(world) <= HALF_BYTES
        world.loop.run_for(2)
        assert 0 < sum(not client.is_lost for client in clients) < 10
        lines = [line for line in logged if line["event"] == "connections closed"]
        assert sum(line["count"] for line in lines) == sum(client.is_lost for client in clients)
        assert "queued.max.request.bytes" in lines[0]["reason"]
        world.loop.run_for(15)
        assert all(client.is_lost for client in clients)
        assert _arriving_bytes(world) == 0


def test_a_request_that_can_never_be_received_is_refused_when_it_begins() -> None:
    with _world() as world, structlog.testing.capture_logs() as logged:
        client = _connect(world, _part_of_a_frame(HALF_BYTES + 1, 10))
        world.wait(lambda: client.is_lost)
        [line] = [line for line in logged if line["event"].startswith("connection closed")]
        assert f"half of queued.max.request.bytes is {HALF_BYTES}" in line["reason"]


def test_long_polls_leave_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each names partitions worth 100 KB, and all of them wait."""
    monkeypatch.setattr(clock, "LOOK_S", 1e-7)  # a step is a partition here
    wanted = [FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)] * 4000
    body = FetchRequest(
        max_wait_ms=1_000_000,
        min_bytes=1,
        max_bytes=1 << 20,
        session_epoch=-1,
        topics=[FetchTopic(topic="foo", partitions=wanted)],
    )
    with _world() as world:
        for _ in range(50):
            _connect(world, _framed(ApiKey.FETCH, 7, body))
        world.loop.run_for(1)
        memory = world.nodes[1].connections.memory
        assert memory.served_bytes == 0
        _produces(world, 600_000)


def test_requests_that_cannot_be_answered_yet_make_others_wait_and_none_is_lost() -> None:
    """The leader has no follower for a while, so that nothing is committed."""
    with _world(size=3) as world:
        leader = world.leader("foo")
        _produces(world, 1000, leader)
        for other in set(world.ids) - {leader}:
            world.network.cut(f"n{leader}", f"n{other}")
            world.network.cut(f"n{other}", f"n{leader}")
        data = _framed(ApiKey.PRODUCE, 9, _produce(600_000))
        clients = [_connect(world, data, leader) for _ in range(14)]
        world.loop.run_for(0.5)
        memory = world.nodes[leader].connections.memory
        assert HALF_BYTES - 600_000 <= memory.served_bytes <= HALF_BYTES
        assert memory.arriving_bytes > 600_000
        assert memory.served_bytes + memory.arriving_bytes <= LIMIT_BYTES
        small = ask(world, leader, ApiKey.METADATA, 9, MetadataRequest(topics=[]), MetadataResponse)
        assert small.brokers
        # Without a majority it is leader no more, which answers them all.
        world.wait(lambda: all(client.received_bytes for client in clients))
        assert not any(client.is_lost for client in clients)
        assert memory.served_bytes == memory.arriving_bytes == 0


def test_a_client_that_asks_for_much_before_it_is_answered_leaves_room_for_others() -> None:
    """The leader has no follower for a while, so that nothing is committed."""
    with _world(size=3) as world:
        leader = world.leader("foo")
        _produces(world, 1000, leader)
        others = set(world.ids) - {leader}
        for other in others:
            world.network.cut(f"n{leader}", f"n{other}")
        greedy = _connect(world, _framed(ApiKey.PRODUCE, 9, _produce(600_000)) * 12, leader)
        world.loop.run_for(0.3)
        memory = world.nodes[leader].connections.memory
        assert HALF_BYTES // 4 <= memory.served_bytes < HALF_BYTES // 4 + 700_000
        other_client = _connect(world, _framed(ApiKey.PRODUCE, 9, _produce(300_000)) * 2, leader)
        before_bytes = memory.served_bytes
        world.loop.run_for(0.1)
        assert memory.served_bytes > before_bytes + 600_000
        for other in others:
            world.network.heal(f"n{leader}", f"n{other}")
        world.wait(lambda: memory.served_bytes == memory.arriving_bytes == 0)
        assert not greedy.is_lost and not other_client.is_lost


def test_a_client_that_reads_no_answers_does_not_keep_its_next_requests_here(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(clock, "LOOK_S", 1e-7)  # a step is a topic here, and two million topics are named
    topics = [MetadataRequestTopic(name="foo")] * 4000
    data = _framed(ApiKey.METADATA, 9, MetadataRequest(topics=topics)) * 40
    with _world() as world:
        greedy = [_connect(world) for _ in range(12)]
        for client in greedy:
            client.transport.pause_reading()
            client.transport.write(data + _part_of_a_frame(HALF_BYTES - 100, 300_000))
        world.loop.run_for(3)
        for _ in range(3):
            _produces(world, 600_000)
            assert _arriving_bytes(world) <= HALF_BYTES


def test_large_requests_without_records_are_served_one_after_the_other() -> None:
    """Decoded, each of them takes many times its size."""
    data = _framed(ApiKey.METADATA, 9, MetadataRequest(topics=[MetadataRequestTopic(name="foo")] * 4000))
    with _world() as world:
        memory = world.nodes[1].connections.memory
        peak = 0

        def look() -> bool:
            nonlocal peak
            peak = max(peak, memory.served_bytes)
            return all(client.received_bytes for client in clients)

        clients = [_connect(world, data) for _ in range(20)]
        world.wait(look)
        assert 0 < peak <= 1.25 * HALF_BYTES
        assert memory.served_bytes == 0
