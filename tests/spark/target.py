"""The cluster that the connector meets, and what the tests do to it as an ordinary Kafka client."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic, OffsetSpec

from tests.integration.harness import BrokerCluster, eventually

LIMIT_S = 60.0
Headers = list[tuple[str, str | bytes | None]]


class Target:
    """Where the tests run. `nodes` is None for a cluster of somebody else's, named by --bootstrap-server."""

    def __init__(self, bootstrap: str, nodes: BrokerCluster | None) -> None:
        self.bootstrap = bootstrap
        self.nodes = nodes
        self.admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})

    def producer(self, **settings: str | int) -> Producer:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        return Producer({"bootstrap.servers": self.bootstrap, "log_level": 2, "linger.ms": 0, **named})

    # -- topics ------------------------------------------------------------------------------------------

    def create(self, topic: str, partitions: int = 1, **config: str) -> str:
        """A topic of three replicas with a leader for each partition. `config` as in cleanup_policy="compact"."""
        # Some tests write timestamps of long ago, which retention would delete at once.
        named = {"retention.ms": "-1"} | {name.replace("_", "."): value for name, value in config.items()}
        new = NewTopic(topic, partitions, 3, config=named)
        self.admin.create_topics([new])[topic].result(LIMIT_S)
        self.wait_led(topic, partitions)
        return topic

    def wait_led(self, topic: str, partitions: int) -> None:
        """Until every partition answers for its end."""
        # The client would go on with what it knew of the topic before partitions were added.
        self.admin.list_topics(topic, LIMIT_S)
        self.ends(topic, partitions)

    def add_partitions(self, topic: str, total: int) -> None:
        self.admin.create_partitions([NewPartitions(topic, total)])[topic].result(LIMIT_S)
        self.wait_led(topic, total)

    def delete(self, topic: str) -> None:
        """Returns when no broker names the topic any more, so that it can be created again."""
        self.admin.delete_topics([topic])[topic].result(LIMIT_S)
        eventually(lambda: topic not in self.topics(), f"{topic} gone", LIMIT_S)

    def topics(self) -> set[str]:
        return set(self.admin.list_topics(timeout=LIMIT_S).topics)

    def delete_records(self, topic: str, before: int, partition: int = 0) -> None:
        place = TopicPartition(topic, partition, before)
        for answer in self.admin.delete_records([place]).values():
            assert answer.result(LIMIT_S).low_watermark == before

    def ends(self, topic: str, partitions: int = 1) -> dict[int, int]:
        return self._offsets(topic, partitions, OffsetSpec.latest())

    def starts(self, topic: str, partitions: int = 1) -> dict[int, int]:
        return self._offsets(topic, partitions, OffsetSpec.earliest())

    def wait_decided(self, topic: str) -> None:
        """Until no transaction is open. A broker may say that one is committed before its markers are in the logs."""

        def look() -> bool:
            committed = IsolationLevel.READ_COMMITTED
            return self._offsets(topic, 1, OffsetSpec.latest(), isolation_level=committed) == self.ends(topic)

        eventually(look, f"markers in {topic}", LIMIT_S)

    def _offsets(
        self, topic: str, partitions: int, spec: OffsetSpec, **how: IsolationLevel
    ) -> dict[int, int]:
        asked = {TopicPartition(topic, number): spec for number in range(partitions)}

        def look() -> dict[int, int] | None:
            answers = self.admin.list_offsets(asked, request_timeout=LIMIT_S, **how)
            try:
                return {place.partition: answer.result(LIMIT_S).offset for place, answer in answers.items()}
            except KafkaException:
                # A broker may hear of a leader later than the others. The client asks again only when it is told to.
                self.admin.list_topics(topic, LIMIT_S)
                return None

        return eventually(look, f"bounds of {topic}", LIMIT_S)

    def groups(self) -> set[str]:
        return {group.group_id for group in self.admin.list_consumer_groups().result(LIMIT_S).valid}

    # -- records -----------------------------------------------------------------------------------------

    def write(
        self,
        topic: str,
        values: Iterable[str | None],
        *,
        partition: int = 0,
        key: str | None = None,
        timestamps_ms: Iterable[int] = (),
        headers: Headers | None = None,
        producer: Producer | None = None,
    ) -> None:
        """Records in this order, acknowledged by the in-sync replicas when this returns.

        Without `timestamps_ms` the producer's clock counts. A producer that is given may be in a transaction.
        """
        writer = producer or self.producer()
        failed: list[KafkaError] = []

        def note(error: KafkaError | None, _message: object) -> None:
            if error is not None:
                failed.append(error)

        stamps = itertools.chain(timestamps_ms, itertools.repeat(0))
        for value, timestamp_ms in zip(values, stamps, strict=False):
            writer.produce(
                topic,
                value,
                key,
                partition=partition,
                timestamp=timestamp_ms,
                headers=headers,
                on_delivery=note,
            )
        assert writer.flush(LIMIT_S) == 0
        assert not failed, failed

    @contextmanager
    def transaction(self, transactional_id: str) -> Iterator[Producer]:
        """A producer in an open transaction; the block commits or aborts it, or leaves it open to the end."""
        producer = self.producer(transactional_id=transactional_id)
        producer.init_transactions(LIMIT_S)
        producer.begin_transaction()
        yield producer


def numbers(start: int, end: int, prefix: str = "v") -> list[str]:
    return [f"{prefix}{number}" for number in range(start, end)]


def now_ms() -> int:
    return time.time_ns() // 1_000_000
