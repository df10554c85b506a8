"""One node that all tests share, and nodes of a test's own that are to be killed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

import varve

TIMEOUT_S = 60


class Node:
    """A cluster of one node, or of more, as its clients see it."""

    def __init__(self, cluster: varve.Cluster) -> None:
        self.cluster = cluster
        self.bootstrap = cluster.bootstrap_servers

    def create(self, topic: str, partitions: int = 1, replicas: int = 1, **config: str) -> str:
        """Settings by Kafka's names, dots as double underscores."""
        named = {name.replace("__", "."): value for name, value in config.items()}
        self.cluster.create_topic(topic, partitions, replicas, named)
        return topic

    def read(self, topic: str, partitions: int = 1) -> list[Message]:
        """All committed records of a topic, partition by partition."""
        settings = {"bootstrap.servers": self.bootstrap, "group.id": "r", "enable.partition.eof": True}
        consumer = Consumer({**settings, "auto.offset.reset": "earliest", "enable.auto.commit": False})
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
        found: list[Message] = []
        left = partitions
        while left:
            message = consumer.poll(TIMEOUT_S)
            assert message is not None, "nothing came, not even the end of a partition"
            error = message.error()
            if error is None:
                found.append(message)
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                left -= 1
        consumer.close()
        return found


@pytest.fixture(scope="session")
def node() -> Iterator[Node]:
    with varve.Cluster(1) as cluster:
        yield Node(cluster)


@pytest.fixture
def make_node() -> Iterator[Callable[..., Node]]:
    with contextlib.ExitStack() as stack:
        yield lambda size=1: Node(stack.enter_context(varve.Cluster(size)))


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name for a topic of the test's own."""
    return "".join(x if x.isalnum() else "-" for x in request.node.name)[:150]
