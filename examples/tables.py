"""What the examples share: a table in a compacted topic, with the last value of each key."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from typing import TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

V = TypeVar("V")

LIMIT_S = 30.0


def bootstrap_server(description: str) -> str:
    """The one option of each example."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--bootstrap-server", default="localhost:19092,localhost:29092,localhost:39092")
    server: str = parser.parse_args().bootstrap_server
    return server


class Table:
    def __init__(self, server: str, topic: str, settings: Mapping[str, str]) -> None:
        """Creates the topic if it is not there."""
        self._server = server
        self._topic = topic
        admin = AdminClient({"bootstrap.servers": server})
        new = NewTopic(topic, num_partitions=1, config={"cleanup.policy": "compact", **settings})
        try:
            admin.create_topics([new])[topic].result(LIMIT_S)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
        # Idempotent: a value that is sent again because an answer was lost is not written twice, or in another order.
        self._producer = Producer({"bootstrap.servers": server, "enable.idempotence": True})

    def put(self, key: str, value: str | None) -> None:
        """`None` deletes the key. Returns when a majority of the replicas has it on disk."""
        failures: list[KafkaError] = []
        self._producer.produce(
            self._topic,
            key=key.encode(),
            value=None if value is None else value.encode(),
            on_delivery=lambda error, _: failures.append(error) if error is not None else None,
        )
        if self._producer.flush(LIMIT_S) or failures:
            raise TimeoutError(f"{key} was not written: {failures}")

    def read(self, changed: Callable[[str, str | None], None]) -> int:
        """Reads the topic from its beginning to its end. Returns how many records there were.

        A service would go on reading after that, and so hear of each change."""
        consumer = Consumer(
            {
                "bootstrap.servers": self._server,
                "group.id": f"{self._topic}-reader",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
            }
        )
        consumer.assign([TopicPartition(self._topic, 0, 0)])
        count = 0
        while (message := consumer.poll(LIMIT_S)) is not None:
            if (error := message.error()) is not None:
                consumer.close()
                if error.code() == KafkaError._PARTITION_EOF:
                    return count
                raise KafkaException(error)
            key, value = message.key(), message.value()
            assert isinstance(key, bytes)
            changed(key.decode(), value.decode() if isinstance(value, bytes) else None)
            count += 1
        raise TimeoutError(f"nobody answers at {self._server}")


def view(table: Table, decode: Callable[[str], V | None]) -> tuple[dict[str, V], int]:
    """The table as it is now, and of how many records it was made. A key whose value is decoded as None is deleted,
    too."""
    values: dict[str, V] = {}

    def change(key: str, text: str | None) -> None:
        value = None if text is None else decode(text)
        if value is None:
            values.pop(key, None)
        else:
            values[key] = value

    count = table.read(change)
    return values, count
