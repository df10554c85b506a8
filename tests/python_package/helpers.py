"""What the tests of package `varve` share: records through a cluster, and which processes are its nodes."""

from __future__ import annotations

import json
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from broker.cli.processes import Process, wait_until_ended

ENDED_S = 30.0


def produce(bootstrap_servers: str, topic: str, *values: str) -> None:
    """Each value is its own key."""
    errors: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            errors.append(error)

    producer = Producer({"bootstrap.servers": bootstrap_servers, "acks": "all"})
    for value in values:
        producer.produce(topic, value, key=value, on_delivery=delivered)
    assert producer.flush(30) == 0
    assert not errors


def read(bootstrap_servers: str, topic: str, count: int) -> list[str]:
    """So many records of partition 0, from the beginning."""
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "unused"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    try:
        messages = consumer.consume(count, timeout=30)
        return [(message.value() or b"").decode() for message in messages]
    finally:
        consumer.close()


def node_processes(directory: str | Path) -> dict[int, Process]:
    """The processes that run the nodes of a cluster, or have run them."""
    found = {}
    for path in sorted(Path(directory).glob("node-*/pid")):
        pid, started = json.loads(path.read_text(encoding="utf-8"))
        found[int(path.parent.name.removeprefix("node-"))] = Process(pid, started)
    return found


def assert_ended(processes: dict[int, Process]) -> None:
    assert processes
    assert not wait_until_ended(list(processes.values()), ENDED_S)
