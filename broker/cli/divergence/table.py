"""A compacted topic of one partition as clients see it: plain writes, transactions, and what a reader of committed data
gets. With settings under which everything happens within a second."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from broker.cli.clients import client_config
from broker.cli.root import CommandError

#: Of the topic.
SETTINGS = {
    "cleanup.policy": "compact",
    "segment.ms": "300",
    "min.cleanable.dirty.ratio": "0",
    "delete.retention.ms": "500",
    "max.compaction.lag.ms": "1000",
    # Apache Kafka must not refuse writes while brokers come and go.
    "min.insync.replicas": "1",
}
#: How long anything may take, in seconds.
LIMIT_S = 60.0
#: Ctrl-C is heard between two calls of the client library, so each is short.
_CALL_S = 0.5
#: What becomes of requests to a broker that hangs.
_CLIENT = {
    "socket.timeout.ms": 5000,
    "topic.metadata.refresh.interval.ms": 1000,
    "topic.metadata.refresh.fast.interval.ms": 100,
}
#: With `--step`, a transaction is open for as long as somebody looks at it. This is the longest that brokers allow.
_TRANSACTION_TIMEOUT_MS = 15 * 60_000

Pair = tuple[bytes, bytes | None]


class Reading(NamedTuple):
    """What a reader of committed data was given, from the first record to where it could not go further."""

    values: dict[bytes, bytes]
    """The last value of each key, without those that are deleted."""
    record_count: int
    deletion_count: int
    stopped_at: int
    """The offset that the broker calls the end for readers of committed data."""
    end_offset: int
    """The high watermark."""


class Table:
    """A topic. Its methods raise CommandError if something takes longer than LIMIT_S, and KafkaException."""

    def __init__(self, bootstrap_server: str, topic: str) -> None:
        self.bootstrap_server = bootstrap_server
        self.topic = topic

    @cached_property
    def _producer(self) -> Producer:
        return Producer(client_config(self.bootstrap_server, **_CLIENT))

    def write(self, *pairs: Pair) -> None:
        """Write records, each a key and a value. None deletes the key. All are acknowledged when it returns."""
        write_to(self._producer, self.topic, pairs)

    def writer(self, transactional_id: str) -> TransactionalWriter:
        return TransactionalWriter(self.bootstrap_server, self.topic, transactional_id)

    def read(self) -> Reading:
        consumer = Consumer(
            client_config(
                self.bootstrap_server,
                **_CLIENT,
                group_id="varve-demo",
                enable_auto_commit=False,
                enable_partition_eof=True,
                isolation_level="read_committed",
            )
        )
        try:
            return self._read(consumer)
        finally:
            consumer.close()

    def _read(self, consumer: Consumer) -> Reading:
        partition = TopicPartition(self.topic, 0, 0)
        consumer.assign([partition])
        values: dict[bytes, bytes] = {}
        records = deletions = 0
        deadline = time.monotonic() + LIMIT_S
        while time.monotonic() < deadline:
            message = consumer.poll(_CALL_S)
            if message is None:
                continue
            error = message.error()
            if error is None:
                records += 1
                key, value = message.key(), message.value()
                assert isinstance(key, bytes)
                if value is None:
                    deletions += 1
                    values.pop(key, None)
                else:
                    assert isinstance(value, bytes)
                    values[key] = value
            elif error.code() == KafkaError._PARTITION_EOF:
                stopped_at = message.offset()
                assert stopped_at is not None
                # From the same answer as the end that was just reached.
                _, end_offset = consumer.get_watermark_offsets(partition, cached=True)
                return Reading(values, records, deletions, stopped_at, end_offset)
        raise CommandError(f"the end of {self.topic} was not reached within {LIMIT_S:.0f} s")


class TransactionalWriter:
    """One transactional id, which writes to one topic."""

    def __init__(self, bootstrap_server: str, topic: str, transactional_id: str) -> None:
        self._topic = topic
        self._producer = Producer(
            client_config(
                bootstrap_server,
                **_CLIENT,
                transactional_id=transactional_id,
                transaction_timeout_ms=_TRANSACTION_TIMEOUT_MS,
            )
        )
        _patiently(self._producer.init_transactions)

    def begin(self, *pairs: Pair) -> None:
        """The records are there, and nobody knows how it ends."""
        self._producer.begin_transaction()
        write_to(self._producer, self._topic, pairs)

    def commit(self) -> None:
        _patiently(self._producer.commit_transaction)

    def abort(self) -> None:
        _patiently(self._producer.abort_transaction)


def write_to(producer: Producer, topic: str, pairs: Sequence[Pair]) -> None:
    """Raises CommandError, KafkaException."""
    errors: list[KafkaError] = []

    def acknowledged(error: KafkaError | None, _: object) -> None:
        if error is not None:
            errors.append(error)

    for key, value in pairs:
        producer.produce(topic, value, key, partition=0, on_delivery=acknowledged)
    deadline = time.monotonic() + LIMIT_S
    while producer.flush(_CALL_S):
        if time.monotonic() > deadline:
            raise CommandError(f"a record was not acknowledged by {topic} within {LIMIT_S:.0f} s")
    if errors:
        raise KafkaException(errors[0])


def _patiently(call: Callable[[float], None]) -> None:
    """These three may be called again when time was too short, and go on."""
    deadline = time.monotonic() + LIMIT_S
    while True:
        try:
            return call(_CALL_S)
        except KafkaException as failure:
            error = failure.args[0]
            if not error.retriable() or time.monotonic() > deadline:
                raise
