"""The task that sends: runs in Spark's Python workers, one idempotent producer each.

Pacing is open-loop. A record's intended send time follows from its sequence number alone, and its latency counts
from there to its acknowledgement; a cluster that stalls therefore shows in every record that was due
meanwhile, not only in the few that were under way (coordinated omission).
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark import BarrierTaskContext

from pipeline.load.progress import LineAddress, Progress, TaskLine
from pipeline.producer import (
    Failure,
    FatalProducerError,
    Outcome,
    ProducerError,
    QueueFullError,
    ReliableProducer,
    RetryPolicy,
    TransactionAbortedError,
)
from pipeline.producer.settings import without_aliases
from pipeline.run_files import ABORTED
from pipeline.workloads.records import headers_of
from pipeline.workloads.spec import RunSpec

# What became of each record. `error` null: acknowledged. A record without a row never had a report.
DELIVERY_SCHEMA_SQL = (
    "sequence bigint, topic string, partition int, offset bigint, value_bytes int, intended_at_us bigint,"
    " acknowledged_at_us bigint, latency_us bigint, error string"
)
DELIVERY_SCHEMA = pa.schema(
    [
        ("sequence", pa.int64()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("value_bytes", pa.int32()),
        ("intended_at_us", pa.int64()),
        ("acknowledged_at_us", pa.int64()),
        ("latency_us", pa.int64()),
        ("error", pa.string()),
    ]
)
# Batches of input that a task reads ahead, so that Spark's making them does not delay a paced record.
_READ_AHEAD_BATCHES = 8
# Between the moment all tasks are ready and the first record.
_START_DELAY_S = 0.2
_PROGRESS_INTERVAL_S = 0.1
# How long a full queue, or the last acknowledgements, are waited for before the task looks whether it shall stop.
_TURN_S = 0.1
# librdkafka gives a record up at its timeout; the margin is for the report to arrive.
_REPORT_MARGIN_S = 10.0

#: A row of DELIVERY_SCHEMA.
Delivery = tuple[int, str, int | None, int | None, int, int, int | None, int | None, str | None]


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    bootstrap_server: str
    compression: str
    linger_ms: float
    message_timeout_ms: int
    """How long the producer retries one record. Must outlast a fail-over, or the loader gives records up."""
    line: LineAddress
    overrides: Mapping[str, str] = field(default_factory=dict)
    """The user's own, by librdkafka's names."""

    def client_config(self) -> dict[str, Any]:
        """Over the baseline of `pipeline.producer`."""
        return {
            "bootstrap.servers": self.bootstrap_server,
            "client.id": "varve-pipeline-load",
            "compression.type": self.compression,
            "linger.ms": self.linger_ms,
            "delivery.timeout.ms": self.message_timeout_ms,
            # Room for what is due while a partition has no leader.
            "queue.buffering.max.messages": 500_000,
            "queue.buffering.max.kbytes": 512 * 1024,
            # Lost connections are expected here; errors reach us as the records' delivery reports.
            "log_level": 2,
            **without_aliases(self.overrides),
        }


def producing(
    spec: RunSpec, settings: ProducerSettings
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function for `mapInArrow(…, barrier=True)`: takes (sequence, key, value, timestamp_ms), gives deliveries."""

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from ProducerTask(spec, settings).run(batches)

    return task


class ProducerTask:
    """The producers of one task. This thread sends; others take acknowledgements (the producers' own), read input
    ahead, and talk to the driver."""

    def __init__(self, spec: RunSpec, settings: ProducerSettings) -> None:
        self._spec = spec
        self._settings = settings
        self._context = BarrierTaskContext.get()
        if self._context.attemptNumber() > 0:
            raise RuntimeError("a loading task must not run twice: it would send its records again")
        # Looked up once: the sending thread uses them for every record.
        self._topics, self._tasks = spec.topic_names, spec.tasks
        task = self._context.partitionId()
        #: Producer p of the run, for the p of this task: the place in the list is p // tasks.
        self._producers = [self._make_producer(number) for number in range(task, spec.producers, self._tasks)]
        #: Of each producer that is within one.
        self._transactions: dict[int, Transaction] = {}
        # A deque, because the producers' threads append while the sending thread takes.
        self._deliveries: deque[Delivery] = deque()
        # For progress only: what counts are the rows above.
        self._sent = 0
        self._acknowledged = 0
        self._failed = 0
        self._finished = threading.Event()
        #: Set when the driver says that no more records are to be sent.
        self._stopped = threading.Event()
        # Monotonic time plus this is wall time, for the whole task: a step of the clock moves no latency.
        self._wall_offset_ns = time.time_ns() - time.monotonic_ns()

    def _make_producer(self, number: int) -> ReliableProducer:
        # Neither breaker nor retries beyond librdkafka's: the run shows what the cluster does, and nothing twice.
        config = self._settings.client_config()
        if not self._spec.transaction_records:
            return ReliableProducer(config, breaker=None, retries=RetryPolicy(max_attempts=1))
        transactional = {
            "transactional.id": f"load-{self._spec.run_id}-{number}",
            "transaction.timeout.ms": self._settings.message_timeout_ms,
        }
        return ReliableProducer(config | transactional, breaker=None)

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        inputs = _read_ahead(batches)
        first = next(inputs, None)
        # Metadata now, so that the first record does not pay for it.
        for producer in self._producers:
            for topic in self._topics:
                producer.partition_count(topic)
        start_ns = self._agree_on_start()
        talk = threading.Thread(target=self._talk, name="talk", daemon=True)
        talk.start()
        try:
            batch = first
            while batch is not None and not self._stopped.is_set():
                self._send(batch, start_ns)
                yield from self._drain()
                batch = next(inputs, None)
            for number in list(self._transactions):
                self._end_transaction(number)
            deadline_s = time.monotonic() + self._settings.message_timeout_ms / 1000 + _REPORT_MARGIN_S
            for producer in self._producers:
                while producer.flush(_TURN_S).outstanding and time.monotonic() < deadline_s:
                    yield from self._drain()
        finally:
            for producer in self._producers:
                producer.close(0)
            self._finished.set()
            talk.join()
        yield from self._drain()

    def _agree_on_start(self) -> int:
        """Wait for all tasks; the common start of the run, as monotonic time of this process."""
        ready_ns = [int(reply) for reply in self._context.allGather(str(time.time_ns()))]
        return max(ready_ns) + int(_START_DELAY_S * 1e9) - self._wall_offset_ns

    def _send(self, batch: pa.RecordBatch, start_ns: int) -> None:
        rate_per_s = self._spec.rate_per_s
        rows = zip(
            batch.column("sequence").to_pylist(),
            batch.column("key").to_pylist(),
            batch.column("value").to_pylist(),
            batch.column("timestamp_ms").to_pylist(),
            strict=True,
        )
        for sequence, key, value, timestamp_ms in rows:
            now_ns = time.monotonic_ns()
            due_ns = start_ns if rate_per_s is None else start_ns + int(sequence * (1e9 / rate_per_s))
            if due_ns > now_ns:
                self._stopped.wait((due_ns - now_ns) / 1e9)
            if self._stopped.is_set():
                return
            # As fast as possible means: due when there is a turn to send it.
            intended_ns = max(due_ns, now_ns) if rate_per_s is None else due_ns
            if self._spec.transaction_records:
                self._enter_transaction(sequence)
            self._produce(sequence, key, value, timestamp_ms, intended_ns)

    def _produce(
        self, sequence: int, key: bytes | None, value: bytes | None, timestamp_ms: int, intended_ns: int
    ) -> None:
        number = sequence % self._spec.producers
        topic = self._topics[self._spec.topic_number(sequence)]
        size = 0 if value is None else len(value)
        open_transaction = self._transactions.get(number)
        told = self._deliveries if open_transaction is None else open_transaction.deliveries
        while not self._stopped.is_set():
            try:
                self._producers[number // self._tasks].send(
                    topic,
                    value,
                    key,
                    timestamp_ms=timestamp_ms,
                    headers=headers_of(self._spec, sequence),
                    on_delivery=partial(self._delivered, told, sequence, topic, size, intended_ns),
                    timeout_s=_TURN_S,
                )
            except QueueFullError:
                # The record keeps its intended time, so that the wait counts as latency.
                continue
            except (FatalProducerError, TransactionAbortedError) as error:
                self._failed += 1
                told.append(self._not_delivered(sequence, topic, size, intended_ns, str(error)))
            self._sent += 1
            return

    def _not_delivered(self, sequence: int, topic: str, size: int, intended_ns: int, reason: str) -> Delivery:
        return (sequence, topic, -1, -1, size, self._wall_us(intended_ns), None, None, reason)

    def _delivered(
        self,
        told: deque[Delivery],
        sequence: int,
        topic: str,
        size: int,
        intended_ns: int,
        outcome: Outcome,
    ) -> None:
        now_ns = time.monotonic_ns()
        if isinstance(outcome, Failure):
            self._failed += 1
            reason = f"{outcome.name}: {outcome.reason}"
            told.append(self._not_delivered(sequence, topic, size, intended_ns, reason))
            return
        self._acknowledged += 1
        # The broker answers a retry of a batch that it holds already without an offset in some cases; then
        # the offset is negative, and the record is acknowledged all the same.
        told.append(
            (
                sequence,
                topic,
                outcome.partition(),
                outcome.offset(),
                size,
                self._wall_us(intended_ns),
                self._wall_us(now_ns),
                (now_ns - intended_ns) // 1000,
                None,
            )
        )

    def _enter_transaction(self, sequence: int) -> None:
        """See to it that the record's producer is within the record's transaction."""
        number = sequence % self._spec.producers
        wanted = self._spec.transaction_number(sequence)
        current = self._transactions.get(number)
        if current is not None and current.number != wanted:
            self._end_transaction(number)
        if number not in self._transactions:
            producer = self._producers[number // self._tasks]
            self._transactions[number] = Transaction(producer, wanted, self._spec.is_aborted(number, wanted))

    def _end_transaction(self, number: int) -> None:
        """What it sent counts from now on, with its outcome."""
        self._deliveries.extend(
            self._transactions.pop(number).end(lambda: self._wall_us(time.monotonic_ns()))
        )

    def _wall_us(self, monotonic_ns: int) -> int:
        return (monotonic_ns + self._wall_offset_ns) // 1000

    def _talk(self) -> None:
        """Tell the driver how far the task is, and hear whether it shall stop."""
        line = TaskLine(self._settings.line, self._context.partitionId())
        while not self._finished.wait(_PROGRESS_INTERVAL_S):
            line.exchange(Progress(self._sent, self._acknowledged, self._failed))
            if line.is_told_to_stop:
                self._stopped.set()
        line.exchange(Progress(self._sent, self._acknowledged, self._failed))
        line.close()

    def _drain(self) -> Iterator[pa.RecordBatch]:
        rows = []
        while self._deliveries:
            rows.append(self._deliveries.popleft())
        if rows:
            columns = [
                pa.array(column, type=field.type)
                for column, field in zip(zip(*rows, strict=True), DELIVERY_SCHEMA, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=DELIVERY_SCHEMA)


class Transaction:
    """An open transaction, and what was said of its records, which counts only when it has ended."""

    def __init__(self, producer: ReliableProducer, number: int, is_aborted_on_purpose: bool) -> None:
        self.number = number
        self.deliveries: deque[Delivery] = deque()
        self._producer = producer
        self._is_aborted_on_purpose = is_aborted_on_purpose
        self._open = ExitStack()
        self._open.enter_context(producer.transaction())

    def end(self, wall_us: Callable[[], int]) -> Iterator[Delivery]:
        """Commit or abort; each record's row. Committed is acknowledged, at the time of the commit."""
        error: str | None = None
        try:
            with self._open:
                if self._is_aborted_on_purpose:
                    raise _OnPurpose
        except _OnPurpose:
            error = ABORTED
        except ProducerError as raised:
            error = f"transaction not committed: {raised}"
        self._producer.flush()  # of an aborted one the last reports may still come
        now_us = wall_us()
        for sequence, topic, partition, offset, size, intended_us, _, _, own_error in self.deliveries:
            if error or own_error:
                yield (sequence, topic, -1, -1, size, intended_us, None, None, error or own_error)
            else:
                latency_us = now_us - intended_us
                yield (sequence, topic, partition, offset, size, intended_us, now_us, latency_us, None)


class _OnPurpose(Exception):
    """Ends the block of a transaction that is to be aborted."""


def _read_ahead(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same batches, read by a thread of its own; its exception is raised here."""
    ahead: queue.Queue[pa.RecordBatch | BaseException | None] = queue.Queue(_READ_AHEAD_BATCHES)

    def read() -> None:
        try:
            for batch in batches:
                ahead.put(batch)
            ahead.put(None)
        except BaseException as error:
            ahead.put(error)

    threading.Thread(target=read, name="read-ahead", daemon=True).start()
    while (item := ahead.get()) is not None:
        if isinstance(item, BaseException):
            raise item
        yield item
