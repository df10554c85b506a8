"""A Kafka request put to one node of a `World`, over its client listener."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from protocol.api_keys import ApiKey
from protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from protocol.records.builder import NewRecord, build_batch
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


def produce_one(
    world: World,
    topic: str,
    producer_id: int,
    sequence: int,
    *,
    epoch: int = 0,
    partition: int = 0,
    node_id: int | None = None,
) -> PartitionProduceResponse:
    """The answer of the leader, or of this node, to a batch of one record of an idempotent producer."""
    batch = build_batch(
        [NewRecord(None, b"x", 0)], producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence
    )
    data = PartitionProduceData(index=partition, records=memoryview(batch))
    body = ProduceRequest(
        acks=-1, timeout_ms=5000, topic_data=[TopicProduceData(name=topic, partition_data=[data])]
    )
    node_id = world.leader(topic, partition) if node_id is None else node_id
    answer = ask(world, node_id, ApiKey.PRODUCE, 9, body, ProduceResponse)
    return answer.responses[0].partition_responses[0]


def until(world: World, holds: Callable[[], bool]) -> None:
    """`holds` asks a node, so it is looked at between two steps of the loop."""
    for _ in range(1200):
        if holds():
            return
        world.loop.run_for(0.1)
    raise AssertionError("it does not happen")
