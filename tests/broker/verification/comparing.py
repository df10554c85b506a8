"""A topic in a world, and its replicas compared."""

from __future__ import annotations

from protocol.api_keys import ApiKey
from protocol.messages.verify_replicas import (
    VerifyPartition,
    VerifyReplicasRequest,
    VerifyReplicasResponse,
    VerifyTopic,
)
from tests.broker.asking import ask
from tests.broker.world import World


def create(world: World, policy: str = "compact") -> tuple[int, list[int]]:
    """The leader, and the others."""
    world.create_topic("table", configs={"cleanup.policy": policy})
    leader = world.leader("table")
    return leader, [node_id for node_id in world.ids if node_id != leader]


def verify(world: World, node_id: int, topic: str = "table", partition: int = 0) -> VerifyPartition:
    return verify_again(world, node_id, 1, topic, partition)[0]


def verify_again(
    world: World, node_id: int, times: int, topic: str = "table", partition: int = 0
) -> list[VerifyPartition]:
    """The partition is named so often in one request."""
    request = request_for(*[VerifyTopic(name=topic, partition_indexes=[partition])] * times)
    answer = ask(world, node_id, ApiKey.VERIFY_REPLICAS, 0, request, VerifyReplicasResponse)
    return [each.partitions[0] for each in answer.topics]


def request_for(*topics: VerifyTopic) -> VerifyReplicasRequest:
    return VerifyReplicasRequest(topics=list(topics), timeout_ms=600_000)
