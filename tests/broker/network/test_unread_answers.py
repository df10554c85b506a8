"""Clients that ask for much data and do not read their answers cost other clients neither memory nor service."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from broker.network.connection import MAX_READY_BYTES, ClientConnection
from protocol.api_keys import ApiKey
from protocol.codec import encode
from protocol.headers import RequestHeader, encode_request_header
from protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tests.broker.network.counting_client import CountingClient, connected
from tests.broker.world import World, running

LIMIT_BYTES = 4 << 20


def _fetch(offset: int, max_wait_ms: int = 0) -> bytes:
    wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    body = FetchRequest(
        replica_id=-1,
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=1 << 20,
        topics=[FetchTopic(topic="foo", partitions=[wanted])],
    )
    frame = encode_request_header(RequestHeader(ApiKey.FETCH, 4, 1, None)) + encode(body, 4)
    return len(frame).to_bytes(4, "big") + frame


@contextmanager
def _world() -> Iterator[World]:
    settings = {"varve.queued.max.response.bytes": str(LIMIT_BYTES)}
    with running(size=1, settings=settings) as world:
        world.create_topic("foo", replication_factor=1)
        for _ in range(16):
            world.produce("foo", b"x" * 60_000)
        yield world


def _connect(world: World, *requests: bytes) -> CountingClient:
    """It reads only after `transport.resume_reading`."""
    client = connected(world)
    client.transport.pause_reading()
    client.transport.writelines(requests)
    return client


def _unread_bytes(world: World) -> int:
    return sum(connection.unread_bytes for connection in world.nodes[1].connections._open)


def test_clients_that_read_nothing_get_small_answers_and_are_then_disconnected() -> None:
    with _world() as world:
        connections = world.nodes[1].connections
        for _ in range(60):
            _connect(world, *[_fetch(0)] * 6)
        world.loop.run_for(1)
        assert LIMIT_BYTES < _unread_bytes(world) < 2 * LIMIT_BYTES
        reader = _connect(world, _fetch(0))
        reader.transport.resume_reading()
        world.wait(lambda: 60_000 < reader.received_bytes < 140_000, limit_s=1)
        world.loop.run_for(15)
        assert len(connections) < 61 and not reader.is_lost
        assert _unread_bytes(world) <= LIMIT_BYTES
        another = _connect(world, _fetch(0))
        another.transport.resume_reading()
        world.wait(lambda: another.received_bytes > 900_000, limit_s=1)


def test_an_answer_takes_at_most_half_of_what_is_left() -> None:
    with _world() as world:
        answers = world.nodes[1].connections.answers
        assert answers.answer_bytes == LIMIT_BYTES // 2
        for _ in range(4):
            _connect(world, _fetch(0))
        world.loop.run_for(1)
        assert LIMIT_BYTES // 2 < _unread_bytes(world) < LIMIT_BYTES
        assert answers.answer_bytes < LIMIT_BYTES // 4


def test_far_above_the_limit_clients_have_less_time() -> None:
    """Their answers were small enough for each of them, but there are very many."""
    with _world() as world:
        for _ in range(20):
            for _ in range(20):
                _connect(world, *[_fetch(0)] * 6)
            world.loop.run_for(0.3)
            assert _unread_bytes(world) < 2 * LIMIT_BYTES
        assert len(world.nodes[1].connections) < 400


def test_a_client_that_reads_slowly_stays_connected() -> None:
    with _world() as world:
        clients = [_connect(world, _fetch(0)) for _ in range(6)]
        for _ in range(40):
            world.loop.run_for(0.5)
            for client in clients:
                client.transport.resume_reading()
            world.loop.run_for(0.0001)
            for client in clients:
                client.transport.pause_reading()
        assert not any(client.is_lost for client in clients)


def test_answers_behind_an_unanswered_request_are_counted() -> None:
    """The client sends a long poll at the end of the log, and then fetches whose answers have to wait for it."""
    with _world() as world:
        client = _connect(world, _fetch(16, max_wait_ms=100_000), *[_fetch(0)] * 50)
        client.transport.resume_reading()
        world.loop.run_for(2)
        (connection,) = world.nodes[1].connections._open
        assert connection.unread_bytes < 3 << 20
        assert client.received_bytes == 0
        world.produce("foo", b"x")
        world.wait(lambda: client.received_bytes > 50 * 900_000)


def test_small_requests_with_large_answers_are_counted_as_well() -> None:
    """They are sent behind a long poll, so that their answers cannot be sent."""
    resources = [
        DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
        for kind, name in ((2, "foo"), (4, "1"))
    ]
    body = DescribeConfigsRequest(resources=resources, include_synonyms=True, include_documentation=True)
    frame = encode_request_header(RequestHeader(ApiKey.DESCRIBE_CONFIGS, 3, 1, None)) + encode(body, 3)
    with _world() as world:
        requests = [len(frame).to_bytes(4, "big") + frame] * 200
        client = _connect(world, _fetch(16, max_wait_ms=100_000), *requests)
        client.transport.resume_reading()
        world.loop.run_for(2)
        (connection,) = world.nodes[1].connections._open
        assert isinstance(connection, ClientConnection)
        sizes = [len(part) for request in connection._requests for part in request.parts or ()]
        assert MAX_READY_BYTES <= sum(sizes) < MAX_READY_BYTES + 50_000
        world.produce("foo", b"x")
        world.wait(lambda: client.received_bytes > 200 * sizes[0])
