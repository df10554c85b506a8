"""What the tests do to topics as a Kafka client does, beside the data source."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic, OffsetSpec

from pipeline.datasource.offsets import Offsets, Range
from pipeline.datasource.options import ReadOptions
from pipeline.datasource.planning import Planner
from pipeline.datasource.task_reader import read_range

Row = dict[str, Any]


class Topics:
    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})

    def create(self, name: str, partitions: int = 1, /, **config: str) -> str:
        settings = {key.replace("_", "."): value for key, value in config.items()}
        request = NewTopic(name, num_partitions=partitions, replication_factor=1, config=settings)
        self.admin.create_topics([request])[name].result(30)
        return name

    def delete(self, name: str) -> None:
        self.admin.delete_topics([name])[name].result(30)

    def add_partitions(self, name: str, total: int) -> None:
        self.admin.create_partitions([NewPartitions(name, total)])[name].result(30)

    def delete_records(self, name: str, partition: int, before: int) -> None:
        for answer in self.admin.delete_records([TopicPartition(name, partition, before)]).values():
            answer.result(30)

    def earliest(self, name: str, partition: int = 0) -> int:
        return self._offset(name, partition, OffsetSpec.earliest())

    def latest(self, name: str, partition: int = 0) -> int:
        return self._offset(name, partition, OffsetSpec.latest())

    def produce(
        self,
        name: str,
        values: Iterable[object],
        partition: int = 0,
        *,
        timestamp_ms: int = 0,
        abort: bool | None = None,
    ) -> None:
        """One record per value, whose key is the value, too. `abort`: in a transaction, aborted or committed."""
        config: dict[str, Any] = {"bootstrap.servers": self.bootstrap, "log_level": 2}
        if abort is not None:
            config["transactional.id"] = f"{name}-writer"
        producer = Producer(config)
        if abort is not None:
            producer.init_transactions(30)
            producer.begin_transaction()
        for value in values:
            text = str(value)
            producer.produce(name, text, text, partition=partition, timestamp=timestamp_ms)
        assert producer.flush(30) == 0
        if abort is not None:
            (producer.abort_transaction if abort else producer.commit_transaction)(30)

    def options(self, topic: str, **more: str) -> dict[str, str]:
        return {"bootstrap.servers": self.bootstrap, "subscribe": topic, **more}

    def planner(self, topic: str, **more: str) -> tuple[ReadOptions, Planner]:
        options = ReadOptions.parse(self.options(topic, **more))
        return options, Planner(options)

    def read(self, topic: str, **more: str) -> list[Row]:
        """The rows of a batch query, without Spark."""
        options, planner = self.planner(topic, **more)
        return rows(options, planner.ranges(planner.start(-2), planner.end()))

    def committed_values(self, topic: str) -> list[str]:
        found = self.read(topic, **{"kafka.isolation.level": "read_committed"})
        return [row["value"].decode() for row in found]

    def _offset(self, name: str, partition: int, spec: OffsetSpec) -> int:
        (answer,) = self.admin.list_offsets({TopicPartition(name, partition): spec}).values()
        offset: int = answer.result(30).offset
        return offset


def rows(options: ReadOptions, ranges: Iterable[Range]) -> list[Row]:
    return [row for each in ranges for batch in read_range(options, each) for row in batch.to_pylist()]


def at(topic: str, *offsets: int) -> Offsets:
    """The offsets of partitions 0, 1, ..., of a topic whose id is not known."""
    return Offsets({(topic, partition): offset for partition, offset in enumerate(offsets)})
