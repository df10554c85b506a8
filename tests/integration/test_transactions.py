"""Transactions with the clients that people use, on real nodes."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from tests.integration.harness import BrokerCluster

PARTITIONS = 3


def new_producer(cluster: BrokerCluster, transactional_id: str, **settings: Any) -> Producer:
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap, "transactional.id": transactional_id, **settings}
    )
    producer.init_transactions(30)
    return producer


def values(cluster: BrokerCluster, topic: str, *, isolation: str = "read_committed") -> list[str]:
    """All that a reader finds in a topic, up to its ends."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "reader",
            "auto.offset.reset": "earliest",
            "isolation.level": isolation,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    found: list[str] = []
    ends: set[int | None] = set()
    while len(ends) < PARTITIONS:
        message = consumer.poll(20)
        assert message is not None, "the reader is stuck"
        error = message.error()
        if error is None:
            found.append((message.value() or b"").decode())
        else:
            assert error.code() == KafkaError._PARTITION_EOF, error
            ends.add(message.partition())
    consumer.close()
    return found


@pytest.fixture
def topics(cluster: BrokerCluster, topic: str) -> tuple[str, str]:
    names = f"{topic}-in", f"{topic}-out"
    with cluster.wire() as wire:
        for name in names:
            assert wire.create(name, PARTITIONS).error_code == 0
    return names


def write(producer: Producer, topic: str, *texts: str) -> None:
    for number, text in enumerate(texts):
        producer.produce(topic, text, partition=number % PARTITIONS)
    producer.flush(20)


class HangingError(Exception):
    """librdkafka may never return when a coordinator has died (its issues 5456 and 5511). The producer is left."""


def send_offsets(producer: Producer, consumer: Consumer) -> None:
    """Raises HangingError, KafkaException."""
    failures: list[KafkaException] = []

    def send() -> None:
        places = consumer.position(consumer.assignment())
        try:
            producer.send_offsets_to_transaction(places, consumer.consumer_group_metadata(), 20)
        except KafkaException as error:
            failures.append(error)

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    thread.join(60)
    if thread.is_alive():
        raise HangingError
    if failures:
        raise failures[0]


def rewind(consumer: Consumer) -> int:
    """Back to what is committed. Returns how many records that is."""
    committed = consumer.committed(consumer.assignment(), 20)
    for place in committed:
        place.offset = max(place.offset, 0)
        consumer.seek(place)
    return sum(place.offset for place in committed)


def test_what_is_committed_is_read_and_what_is_aborted_is_not(
    cluster: BrokerCluster, topics: tuple[str, str]
) -> None:
    topic, _ = topics
    producer = new_producer(cluster, topic)
    for number in range(10):
        producer.begin_transaction()
        write(producer, topic, *(f"{number}-{at}" for at in range(5)))
        if number % 2:
            producer.abort_transaction(20)
        else:
            producer.commit_transaction(20)
    committed = [f"{number}-{at}" for number in range(0, 10, 2) for at in range(5)]
    assert sorted(values(cluster, topic)) == sorted(committed)
    assert len(values(cluster, topic, isolation="read_uncommitted")) == 50


def test_a_second_producer_fences_the_first(cluster: BrokerCluster, topics: tuple[str, str]) -> None:
    topic, _ = topics
    zombie = new_producer(cluster, topic)
    zombie.begin_transaction()
    write(zombie, topic, "zombie")
    successor = new_producer(cluster, topic)
    successor.begin_transaction()
    write(successor, topic, "successor")
    with pytest.raises(KafkaException) as fenced:
        zombie.commit_transaction(20)
    assert fenced.value.args[0].code() in (KafkaError._FENCED, KafkaError.PRODUCER_FENCED)
    successor.commit_transaction(20)
    assert values(cluster, topic) == ["successor"]


def test_records_are_transformed_exactly_once_although_a_node_is_killed(own_cluster: BrokerCluster) -> None:
    """A consumer reads, a producer writes and commits the consumer's offsets with it. Some transactions fail and are
    aborted, and the consumer goes back to what is committed."""
    with own_cluster.wire() as wire:
        for name in ("in", "out"):
            assert wire.create(name, PARTITIONS).error_code == 0
    source = Producer({"bootstrap.servers": own_cluster.bootstrap})
    texts = [str(number) for number in range(300)]
    write(source, "in", *texts)
    consumer = Consumer(
        {
            "bootstrap.servers": own_cluster.bootstrap,
            "group.id": "transformers",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition("in", partition, 0) for partition in range(PARTITIONS)])
    producer = new_producer(own_cluster, "transformer")
    done = 0
    while done < len(texts):
        messages = [message for message in consumer.consume(20, 1.0) if message.error() is None]
        if not messages:
            continue
        if done >= 100 and len(own_cluster.running) == 3:
            own_cluster.kill(own_cluster.leader_of("out"))
        producer.begin_transaction()
        try:
            for message in messages:
                producer.produce("out", message.value(), partition=message.partition() or 0)
            send_offsets(producer, consumer)
            producer.commit_transaction(30)
        except HangingError:
            producer = new_producer(own_cluster, "transformer")
            done = rewind(consumer)
        except KafkaException as error:
            assert error.args[0].txn_requires_abort(), error
            producer.abort_transaction(30)
            done = rewind(consumer)
        else:
            done += len(messages)
    consumer.close()
    assert Counter(values(own_cluster, "out")) == Counter(texts)


async def test_aiokafka_commits_and_aborts(cluster: BrokerCluster, topics: tuple[str, str]) -> None:
    topic, _ = topics
    async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap, transactional_id=topic) as producer:
        for number in range(4):
            await producer.begin_transaction()
            await producer.send_and_wait(topic, str(number).encode(), partition=0)
            if number % 2:
                await producer.abort_transaction()
            else:
                await producer.commit_transaction()
    assert values(cluster, topic) == ["0", "2"]
