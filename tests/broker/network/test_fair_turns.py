"""Clients that send many requests at once do not keep the others waiting."""

from __future__ import annotations

import struct

from broker.network.connection import SERVED_IN_A_ROW, ClientConnection
from broker.serving.dispatcher import LEADER_ANSWER_DELAY_S
from protocol.api_keys import ApiKey
from protocol.codec import encode
from protocol.headers import RequestHeader, encode_request_header
from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol.schema import Message
from tests.broker.world import World, running
from tests.simulator.client import Connection
from tests.simulator.clock import LOOK_S

MANY = 40 * SERVED_IN_A_ROW


def _framed(key: ApiKey, version: int, body: Message) -> bytes:
    frame = encode_request_header(RequestHeader(key, version, 1, None)) + encode(body, version)
    return struct.pack(">i", len(frame)) + frame


def _connected(world: World) -> ClientConnection:
    """The node's side of a new connection."""
    node = world.nodes[1]
    known = set(node.connections._open)
    task = world.loop.create_task(world.network.of("client").connect("n1", 9092, Connection))
    world.wait(task.done)
    world.wait(lambda: len(node.connections) > len(known))
    [connection] = set(node.connections._open) - known
    assert isinstance(connection, ClientConnection)
    return connection


def _received(world: World, connection: ClientConnection, data: bytes) -> None:
    def bytes_came() -> None:
        buffer = connection.get_buffer(-1)
        memoryview(buffer)[: len(data)] = data
        connection.buffer_updated(len(data))

    world.processes[1].call(bytes_came)


def test_held_requests_are_served_in_turns() -> None:
    """The other client's only request is not behind hundreds of those that came before it."""
    with running(size=1) as world:
        greedy, modest = _connected(world), _connected(world)
        # Each look at the clock takes time in a world: an iteration has time for so many requests.
        world.nodes[1].turn.budget._limit_s = MANY / 4 * LOOK_S
        question = _framed(ApiKey.API_VERSIONS, 0, ApiVersionsRequest())
        _received(world, greedy, question * MANY)
        _received(world, modest, question)
        held = len(greedy._held)
        assert held > MANY / 2 and len(modest._held) == 1
        served_before: list[int] = []
        world.loop.after_callback.append(
            lambda: served_before.append(held - len(greedy._held)) if modest.is_idle else None
        )
        world.wait(lambda: modest.is_idle)
        assert served_before[0] <= 2 * SERVED_IN_A_ROW
        world.wait(lambda: greedy.is_idle)


def test_a_client_has_one_delayed_question_at_a_time() -> None:
    """All of them together would be due at the same moment."""
    with running(size=1) as world:
        world.create_topic("foo", replication_factor=1)
        connection = _connected(world)
        wanted = MetadataRequest(topics=[MetadataRequestTopic(name="foo")])
        _received(world, connection, _framed(ApiKey.METADATA, 9, wanted) * 3)
        assert len(connection._requests) == 1
        assert len(connection._held) == 2
        began_s = world.loop.time()
        world.wait(lambda: connection.is_idle)
        assert world.loop.time() - began_s >= 3 * LEADER_ANSWER_DELAY_S
