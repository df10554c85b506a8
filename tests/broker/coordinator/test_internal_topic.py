"""The internal topic of a coordinator: its creation, and which node leads the partition of a key."""

from __future__ import annotations

import pytest

from protocol.errors import ErrorCode, KafkaError
from tests.broker.coordinator.registers import MAX_NAME_LENGTH, PARTITIONS, TOPIC, RegisterWorld
from tests.broker.world import running


def test_the_first_find_coordinator_creates_the_topic_by_its_spec() -> None:
    with running() as world:
        cluster = RegisterWorld(world)
        topic = cluster.nodes[1].topic
        assert topic.partition_of("a") == -1
        for _ in range(2):
            with pytest.raises(KafkaError, match=f"{TOPIC} is being created") as refused:
                cluster.call(1, topic.find_coordinator, "a", "PLAINTEXT")
            assert refused.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        world.wait(lambda: topic.partition_of("a") >= 0)
        record = world.nodes[1].metadata.image.topic_named(TOPIC)
        assert record is not None
        assert [len(each.replicas) for each in record.partitions] == [3] * PARTITIONS
        assert record.configs == {"cleanup.policy": "compact", "min.insync.replicas": "1"}


def test_every_node_finds_the_leader_of_the_partition() -> None:
    with running() as world:
        cluster = RegisterWorld(world)
        cluster.create_topic()
        for name in ("a", "b", "c", "d"):
            partition = cluster.nodes[1].topic.partition_of(name)
            leader = cluster.coordinator(partition)
            world.wait(
                lambda partition=partition: all(  # type: ignore[misc]
                    node.view.leader_of(TOPIC, partition)[0] >= 0 for node in world.nodes.values()
                )
            )
            for registers in cluster.nodes.values():
                found = registers.topic.find_coordinator(name, "PLAINTEXT")
                assert found == (leader, f"n{leader}", 9092)


def test_a_topic_that_exists_is_left_as_it_is() -> None:
    with running() as world:
        cluster = RegisterWorld(world)
        cluster.create_topic()
        before = world.nodes[2].metadata.image.topic_named(TOPIC)
        cluster.call(2, cluster.nodes[2].topic.create)
        world.loop.run_for(1)
        assert world.nodes[2].metadata.image.topic_named(TOPIC) == before


def test_a_key_is_checked_before_it_is_hashed() -> None:
    with running(size=1) as world:
        cluster = RegisterWorld(world)
        cluster.create_topic()
        long = "x" * (MAX_NAME_LENGTH + 1)
        topic = cluster.nodes[1].topic
        for question in (topic.partition_of, lambda key: topic.find_coordinator(key, "PLAINTEXT")):
            with pytest.raises(KafkaError, match="a long name"):
                question(long)
        assert cluster.add(1, long, 1) is ErrorCode.INVALID_REQUEST
