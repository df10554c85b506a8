"""A compacted topic in a world, and passes that are asked for."""

from __future__ import annotations

from typing import Any

from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.compact_partitions import (
    CompactPartition,
    CompactPartitionsRequest,
    CompactPartitionsResponse,
    CompactTopic,
)
from tests.broker.asking import ask
from tests.broker.world import World

COMPACTED = {"cleanup.policy": "compact"}


def create(world: World, replication_factor: int = 1, **settings: str) -> Any:
    configs = COMPACTED | {key.replace("_", "."): value for key, value in settings.items()}
    return world.create_topic("table", replication_factor=replication_factor, configs=configs)


def request(*topics: str, timeout_ms: int = 60_000, partition: int = 0) -> CompactPartitionsRequest:
    named = [CompactTopic(name=topic, partition_indexes=[partition]) for topic in topics]
    return CompactPartitionsRequest(topics=named, timeout_ms=timeout_ms)


def compact(world: World, body: CompactPartitionsRequest, node_id: int = 1) -> CompactPartition:
    answer = ask(world, node_id, ApiKey.COMPACT_PARTITIONS, 0, body, CompactPartitionsResponse)
    return answer.topics[0].partitions[0]


def pass_over(world: World, node_id: int = 1) -> None:
    """... of the table, and it succeeds."""
    assert compact(world, request("table"), node_id).error_code == ErrorCode.NONE


def write(world: World, topic: str) -> None:
    """20 values of one key."""
    for number in range(20):
        world.produce(topic, b"%d" % number, key=b"k")
