"""How many connections there may be, and what is said about those that are refused."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import structlog

from broker.config.layers import LiveSettings
from broker.config.node_config import NodeConfig
from broker.network.connection_registry import ConnectionRegistry
from broker.scheduling.ticks import Ticks
from protocol.api_keys import ApiKey
from protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from protocol.messages.metadata import MetadataRequest, MetadataResponse
from tests.broker.asking import ask, connect
from tests.broker.world import World, running
from tests.simulator.client import Connection


@contextmanager
def _world(size: int = 1) -> Iterator[World]:
    with running(size=size, settings={"max.connections": "5"}) as world:
        yield world


def _connect(world: World, node_id: int = 1) -> Connection:
    task = world.loop.create_task(connect(world, node_id))
    world.wait(task.done)
    return task.result()


def _is_served(world: World, connection: Connection) -> bool:
    task = world.loop.create_task(
        connection.request(ApiKey.METADATA, 9, MetadataRequest(topics=[]), MetadataResponse)
    )
    world.wait(task.done)
    return task.exception() is None and bool(task.result().brokers)


def test_further_connections_are_refused_and_the_others_are_served() -> None:
    with _world() as world, structlog.testing.capture_logs() as logged:
        connections = [_connect(world) for _ in range(5)]
        refused = _connect(world)
        world.wait(lambda: refused.is_lost)
        assert all(_is_served(world, connection) for connection in connections)
        [line] = [line for line in logged if line["event"] == "connection refused"]
        assert line["reason"] == "max.connections (5) reached"
        connections[0].abort()
        world.wait(lambda: len(world.nodes[1].connections) == 4)
        assert _is_served(world, _connect(world))


def test_the_peers_of_a_node_reach_it_all_the_same() -> None:
    with _world(size=3) as world:
        for node_id in world.ids:
            for _ in range(8):
                _connect(world, node_id)
        world.kill(2)
        world.start(2)
        world.wait_ready(2)
        world.create_topic("foo", via=2)
        assert world.produce("foo", b"x") == 0


def test_clients_can_change_the_limit() -> None:
    config = AlterableConfig(name="max.connections", config_operation=0, value="2")
    resource = AlterConfigsResource(resource_type=4, resource_name="", configs=[config])
    with _world() as world:
        body = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
        answer = ask(world, 1, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, body, IncrementalAlterConfigsResponse)
        assert answer.responses[0].error_code == 0
        world.wait(lambda: world.nodes[1].settings.config.max_connections == 2)
        world.wait(lambda: len(world.nodes[1].connections) <= 1)
        connections = [_connect(world) for _ in range(4)]
        world.wait(lambda: sum(connection.is_lost for connection in connections) >= 2)


async def test_files_of_partitions_find_descriptors() -> None:
    """Half of the descriptors of the process are not for connections, whatever the setting says."""
    settings = LiveSettings(NodeConfig(descriptor_limit=6))
    registry = ConnectionRegistry(settings, Ticks(asyncio.get_running_loop()))
    connections = [_Opened() for _ in range(4)]
    with structlog.testing.capture_logs() as logged:
        for connection in connections:
            registry.admit(connection)  # type: ignore[arg-type]
    assert [connection.is_aborted for connection in connections] == [False] * 3 + [True]
    assert [line["reason"] for line in logged] == ["half of the open files limit (3) reached"]


class _Opened:
    """As much of a connection as its admission needs."""

    host, peer = "127.0.0.1", "127.0.0.1:50000"
    own_host, listener = "127.0.0.1", "PLAINTEXT"

    def __init__(self) -> None:
        self.is_aborted = False

    def abort(self) -> None:
        self.is_aborted = True
