"""Transactions per second, what a commit takes, and exactly-once throughput from one topic to another."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.driver import DriverError
from benchmarks.measure import Bench
from benchmarks.process_stats import sample_cpu
from benchmarks.report import number

#: Records of a transaction, and producers at a time, each with a transactional id of its own.
RECORDS = (1, 10, 100)
PRODUCERS = (1, 8)
PARTITIONS = 3
VALUE = b"x" * 100
TIMEOUT_S = 30.0
#: Of the chain: records that it consumes, at most so many in a transaction.
CHAINED, CHAIN_BATCH = 20_000, 500


@dataclass
class TransactionRow:
    """`per_s`: transactions, or of the chain records."""

    name: str
    per_s: float
    commits_ms: list[float] = field(default_factory=list)
    cpu_ms_each: float | None = None

    def commit_ms(self, part: float) -> float | None:
        ordered = sorted(self.commits_ms)
        return ordered[min(int(part * len(ordered)), len(ordered) - 1)] if ordered else None


def measure_transactions(bench: Bench, runs: int) -> list[TransactionRow]:
    """Each row `runs` times; the run with the median throughput counts."""
    rows = [
        _median([_transactions(bench, producers, records) for _ in range(runs)])
        for producers in PRODUCERS
        for records in RECORDS
    ]
    rows.append(_median([_chain(bench) for _ in range(runs)]))
    return rows


def _median(found: Sequence[TransactionRow]) -> TransactionRow:
    return sorted(found, key=lambda row: row.per_s)[len(found) // 2]


def _new_producer(bench: Bench, transactional_id: str) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": bench.cluster.bootstrap,
            "transactional.id": transactional_id,
            "linger.ms": 0,
            "log_level": 0,
        }
    )
    producer.init_transactions(TIMEOUT_S)
    return producer


class _Client(threading.Thread):
    """One transaction after the other, until the time is over."""

    def __init__(self, producer: Producer, topic: str, records: int, until_s: float) -> None:
        super().__init__(daemon=True)
        self._producer = producer
        self._topic = topic
        self._records = records
        self._until_s = until_s
        self.commits_ms: list[float] = []
        self.error: KafkaException | None = None

    def run(self) -> None:
        try:
            while time.monotonic() < self._until_s:
                self._producer.begin_transaction()
                for at in range(self._records):
                    self._producer.produce(self._topic, VALUE, partition=at % PARTITIONS)
                began_s = time.monotonic()
                self._producer.commit_transaction(TIMEOUT_S)
                self.commits_ms.append(1e3 * (time.monotonic() - began_s))
        except KafkaException as error:
            self.error = error


def _transactions(bench: Bench, producers: int, records: int) -> TransactionRow:
    name = f"{producers} producer{'s' * (producers > 1)}, {records} record{'s' * (records > 1)}"
    bench.log(f"{bench.cluster.name}: {name}")
    topic = bench.create_topic(PARTITIONS)
    made = [_new_producer(bench, f"{topic}-{at}") for at in range(producers)]
    pids, began_s = bench.cluster.pids(), time.monotonic()
    before = sample_cpu(pids)
    clients = [_Client(producer, topic, records, began_s + bench.seconds) for producer in made]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    took_s = time.monotonic() - began_s
    used_ms = sum(before.used_ms_until(sample_cpu(pids)).values())
    for client in clients:
        if client.error is not None:
            raise DriverError(f"a transaction failed: {client.error}")
    commits_ms = [each for client in clients for each in client.commits_ms]
    bench.delete_topic(topic)
    cpu_ms = used_ms / len(commits_ms) if pids else None
    return TransactionRow(name, len(commits_ms) / took_s, commits_ms, cpu_ms)


def _chain(bench: Bench) -> TransactionRow:
    """Consume, transform, produce, with the offsets in the transaction."""
    name = f"chain, up to {CHAIN_BATCH} records"
    bench.log(f"{bench.cluster.name}: {name}")
    source, target = bench.create_topic(PARTITIONS), bench.create_topic(PARTITIONS)
    _fill(bench, source)
    consumer = Consumer(
        {
            "bootstrap.servers": bench.cluster.bootstrap,
            "group.id": source,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(source, partition, 0) for partition in range(PARTITIONS)])
    producer = _new_producer(bench, target)
    pids, began_s = bench.cluster.pids(), time.monotonic()
    before = sample_cpu(pids)
    done, commits_ms = 0, []
    while done < CHAINED:
        messages = list(_read(consumer))
        producer.begin_transaction()
        for message in messages:
            producer.produce(target, message, partition=done % PARTITIONS)
        committed_s = time.monotonic()
        places = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(places, consumer.consumer_group_metadata(), TIMEOUT_S)
        producer.commit_transaction(TIMEOUT_S)
        commits_ms.append(1e3 * (time.monotonic() - committed_s))
        done += len(messages)
    took_s = time.monotonic() - began_s
    used_ms = sum(before.used_ms_until(sample_cpu(pids)).values())
    consumer.close()
    bench.delete_topic(source)
    bench.delete_topic(target)
    return TransactionRow(name, done / took_s, commits_ms, used_ms / done if pids else None)


def _fill(bench: Bench, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bench.cluster.bootstrap, "linger.ms": 5, "log_level": 0})
    for at in range(CHAINED):
        producer.produce(topic, VALUE, partition=at % PARTITIONS)
        producer.poll(0)
    if producer.flush(TIMEOUT_S):
        raise DriverError("the source of the chain was not written")


def _read(consumer: Consumer) -> Iterator[bytes]:
    """At least one record, and what comes with it."""
    messages: list[Any] = []
    until_s = time.monotonic() + TIMEOUT_S
    while not messages:
        if time.monotonic() > until_s:
            raise DriverError("the chain's consumer got no records")
        messages = [each for each in consumer.consume(CHAIN_BATCH, 0.05) if each.error() is None]
    for message in messages:
        yield message.value()


def document_of(rows: Sequence[TransactionRow]) -> dict[str, Any]:
    """For --format json."""
    return {
        "rows": [
            {
                "name": row.name,
                "per_s": row.per_s,
                "commit_p50_ms": row.commit_ms(0.5),
                "commit_p99_ms": row.commit_ms(0.99),
                "cpu_ms_each": row.cpu_ms_each,
            }
            for row in rows
        ]
    }


def print_transactions(sides: Mapping[str, Sequence[TransactionRow]], out: Console) -> None:
    """`sides`: the rows of each cluster, by its name."""
    table = Table("transactions", box=box.SIMPLE)
    for name in sides:
        for column in ("per s", "commit p50 ms", "p99 ms", "broker CPU ms each"):
            table.add_column(f"{name} {column}", justify="right")
    for at, row in enumerate(next(iter(sides.values()))):
        cells = [
            number(figure)
            for rows in sides.values()
            for figure in (
                rows[at].per_s,
                rows[at].commit_ms(0.5),
                rows[at].commit_ms(0.99),
                rows[at].cpu_ms_each,
            )
        ]
        table.add_row(row.name, *cells)
    out.print(table)
