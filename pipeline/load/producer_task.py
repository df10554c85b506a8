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
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Message, Producer
from pyspark import BarrierTaskContext

from pipeline.load.progress import LineAddress, Progress, TaskLine
from pipeline.workloads.records import RunSpec, headers_of

# What became of each record. `error` null: acknowledged. A record without a row never had a report.
DELIVERY_SCHEMA_SQL = (
    "sequence bigint, partition int, offset bigint, intended_at_us bigint, acknowledged_at_us bigint,"
    " latency_us bigint, error string"
)
DELIVERY_SCHEMA = pa.schema(
    [
        ("sequence", pa.int64()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
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
_BACKPRESSURE_WAIT_S = 0.001


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    bootstrap_server: str
    compression: str
    linger_ms: float
    message_timeout_ms: int
    """How long the producer retries one record. Must outlast a fail-over, or the loader gives records up."""
    line: LineAddress

    def client_config(self) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.bootstrap_server,
            "client.id": "varve-pipeline-load",
            "enable.idempotence": True,
            "acks": "all",
            "compression.type": self.compression,
            "linger.ms": self.linger_ms,
            "message.timeout.ms": self.message_timeout_ms,
            # A frozen leader leaves its connections open: what is under way waits for this long. The default
            # (60 s) would hide a fail-over of one second.
            "socket.timeout.ms": 10_000,
            "request.timeout.ms": 10_000,
            "reconnect.backoff.max.ms": 1_000,
            "retry.backoff.max.ms": 500,
            # The same key goes to the same partition as with Java's producer.
            "partitioner": "murmur2_random",
            # Room for what is due while a partition has no leader.
            "queue.buffering.max.messages": 500_000,
            "queue.buffering.max.kbytes": 512 * 1024,
            # Lost connections are expected here; errors reach us as the records' delivery reports.
            "log_level": 2,
        }


def producing(
    spec: RunSpec, settings: ProducerSettings
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function for `mapInArrow(…, barrier=True)`: takes (sequence, key, value, timestamp_ms), gives deliveries."""

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from ProducerTask(spec, settings).run(batches)

    return task


class ProducerTask:
    """One producer, three threads: this one sends, one polls for acknowledgements, one reads input ahead."""

    def __init__(self, spec: RunSpec, settings: ProducerSettings) -> None:
        self._spec = spec
        self._settings = settings
        self._context = BarrierTaskContext.get()
        if self._context.attemptNumber() > 0:
            raise RuntimeError("a loading task must not run twice: it would send its records again")
        self._producer = Producer(settings.client_config())
        # A deque, because both threads append while the sending thread takes.
        self._deliveries: deque[tuple[Any, ...]] = deque()
        # For progress only: what counts are the rows above.
        self._sent = 0
        self._acknowledged = 0
        self._failed = 0
        self._finished = threading.Event()
        #: Set when the driver says that no more records are to be sent.
        self._stopped = threading.Event()
        # Monotonic time plus this is wall time, for the whole task: a step of the clock moves no latency.
        self._wall_offset_ns = time.time_ns() - time.monotonic_ns()

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        inputs = _read_ahead(batches)
        first = next(inputs, None)
        # Metadata now, so that the first record does not pay for it.
        self._producer.list_topics(self._spec.topic, timeout=30)
        start_ns = self._agree_on_start()
        poller = threading.Thread(target=self._poll, name="poll", daemon=True)
        poller.start()
        try:
            batch = first
            while batch is not None and not self._stopped.is_set():
                self._send(batch, start_ns)
                yield from self._drain()
                batch = next(inputs, None)
            # librdkafka reports every record by its timeout; the margin is for the report to arrive.
            deadline_ns = time.monotonic_ns() + (self._settings.message_timeout_ms + 10_000) * 1_000_000
            while len(self._producer) > 0 and time.monotonic_ns() < deadline_ns:
                time.sleep(0.01)
                yield from self._drain()
        finally:
            self._finished.set()
            poller.join()
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
            self._produce(sequence, key, value, timestamp_ms, intended_ns)

    def _produce(self, sequence: int, key: bytes, value: bytes, timestamp_ms: int, intended_ns: int) -> None:
        while True:
            try:
                self._producer.produce(
                    self._spec.topic,
                    value,
                    key,
                    timestamp=timestamp_ms,
                    headers=headers_of(self._spec, sequence),
                    on_delivery=partial(self._delivered, sequence, intended_ns),
                )
            except BufferError:
                # The queue is full. The record keeps its intended time, so that the wait counts as latency.
                if self._stopped.wait(_BACKPRESSURE_WAIT_S):
                    return
                continue
            except KafkaException as error:
                # Refused at once, as all are once the producer has met a fatal error.
                self._deliveries.append(
                    (sequence, -1, -1, self._wall_us(intended_ns), None, None, str(error))
                )
                self._failed += 1
            self._sent += 1
            return

    def _delivered(self, sequence: int, intended_ns: int, error: KafkaError | None, message: Message) -> None:
        now_ns = time.monotonic_ns()
        intended_at_us = self._wall_us(intended_ns)
        if error is not None:
            self._failed += 1
            self._deliveries.append((sequence, -1, -1, intended_at_us, None, None, str(error)))
            return
        self._acknowledged += 1
        # The broker answers a retry of a batch that it holds already without an offset in some cases; then
        # the offset is negative, and the record is acknowledged all the same.
        self._deliveries.append(
            (
                sequence,
                message.partition(),
                message.offset(),
                intended_at_us,
                self._wall_us(now_ns),
                (now_ns - intended_ns) // 1000,
                None,
            )
        )

    def _wall_us(self, monotonic_ns: int) -> int:
        return (monotonic_ns + self._wall_offset_ns) // 1000

    def _poll(self) -> None:
        """Take acknowledgements as they arrive, whatever the sending thread waits for."""
        line = TaskLine(self._settings.line, self._context.partitionId())
        next_report_ns = 0
        while not self._finished.is_set():
            self._producer.poll(_PROGRESS_INTERVAL_S)
            if time.monotonic_ns() >= next_report_ns:
                next_report_ns = time.monotonic_ns() + int(_PROGRESS_INTERVAL_S * 1e9)
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
