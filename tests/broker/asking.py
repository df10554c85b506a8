"""A Kafka request put to one node of a `World`, over its client listener."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from protocol.api_keys import ApiKey
from protocol.schema import Message
from tests.broker.world import World
from tests.simulator.client import Connection

M = TypeVar("M", bound=Message)


async def connect(world: World, node_id: int = 1) -> Connection:
    connection = Connection()
    await world.network.of("client").connect(f"n{node_id}", 9092, lambda: connection)
    return connection


def begin_ask(
    world: World, node_id: int, key: ApiKey, version: int, body: Message, response: type[M]
) -> asyncio.Task[M]:
    """The question is under way. The task fails with ConnectionError where the node closes the connection."""

    async def question() -> M:
        connection = await connect(world, node_id)
        return await connection.request(key, version, body, response)

    return world.loop.create_task(question())


def ask(world: World, node_id: int, key: ApiKey, version: int, body: Message, response: type[M]) -> M:
    """The node's answer. Raises ConnectionError where it closes the connection instead."""
    task = begin_ask(world, node_id, key, version, body, response)
    world.wait(task.done)
    return task.result()


def until(world: World, holds: Callable[[], bool]) -> None:
    """`holds` asks a node, so it is looked at between two steps of the loop."""
    for _ in range(1200):
        if holds():
            return
        world.loop.run_for(0.1)
    raise AssertionError("it does not happen")
