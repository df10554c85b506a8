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
from pyspark import BarrierTaskContext

from pipeline.load.progress import LineAddress, Progress, TaskLine
from pipeline.producer import (
    Failure,
    FatalProducerError,
    Outcome,
    QueueFullError,
    ReliableProducer,
    RetryPolicy,
)
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
# How long a full queue, or the last acknowledgements, are waited for before the task looks whether it shall stop.
_TURN_S = 0.1
# librdkafka gives a record up at its timeout; the margin is for the report to arrive.
_REPORT_MARGIN_S = 10.0


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    bootstrap_server: str
    compression: str
    linger_ms: float
    message_timeout_ms: int
    """How long the producer retries one record. Must outlast a fail-over, or the loader gives records up."""
    line: LineAddress

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
        }


def producing(
    spec: RunSpec, settings: ProducerSettings
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function for `mapInArrow(…, barrier=True)`: takes (sequence, key, value, timestamp_ms), gives deliveries."""

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from ProducerTask(spec, settings).run(batches)

    return task


class ProducerTask:
    """One producer. This thread sends; others take acknowledgements (the producer's own), read input ahead, and talk
    to the driver."""

    def __init__(self, spec: RunSpec, settings: ProducerSettings) -> None:
        self._spec = spec
        self._settings = settings
        self._context = BarrierTaskContext.get()
        if self._context.attemptNumber() > 0:
            raise RuntimeError("a loading task must not run twice: it would send its records again")
        # Neither breaker nor retries beyond librdkafka's: the run shows what the cluster does, and nothing twice.
        self._producer = ReliableProducer(
            settings.client_config(), breaker=None, retries=RetryPolicy(max_attempts=1)
        )
        # A deque, because the producer's thread appends while the sending thread takes.
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
        self._producer.partition_count(self._spec.topic)
        start_ns = self._agree_on_start()
        talk = threading.Thread(target=self._talk, name="talk", daemon=True)
        talk.start()
        try:
            batch = first
            while batch is not None and not self._stopped.is_set():
                self._send(batch, start_ns)
                yield from self._drain()
                batch = next(inputs, None)
            deadline_s = time.monotonic() + self._settings.message_timeout_ms / 1000 + _REPORT_MARGIN_S
            while self._producer.flush(_TURN_S).outstanding and time.monotonic() < deadline_s:
                yield from self._drain()
        finally:
            self._producer.close(0)
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
            self._produce(sequence, key, value, timestamp_ms, intended_ns)

    def _produce(self, sequence: int, key: bytes, value: bytes, timestamp_ms: int, intended_ns: int) -> None:
        while not self._stopped.is_set():
            try:
                self._producer.send(
                    self._spec.topic,
                    value,
                    key,
                    timestamp_ms=timestamp_ms,
                    headers=headers_of(self._spec, sequence),
                    on_delivery=partial(self._delivered, sequence, intended_ns),
                    timeout_s=_TURN_S,
                )
            except QueueFullError:
                # The record keeps its intended time, so that the wait counts as latency.
                continue
            except FatalProducerError as error:
                self._failed_to_deliver(sequence, intended_ns, str(error))
            self._sent += 1
            return

    def _failed_to_deliver(self, sequence: int, intended_ns: int, reason: str) -> None:
        self._failed += 1
        self._deliveries.append((sequence, -1, -1, self._wall_us(intended_ns), None, None, reason))

    def _delivered(self, sequence: int, intended_ns: int, outcome: Outcome) -> None:
        now_ns = time.monotonic_ns()
        if isinstance(outcome, Failure):
            self._failed_to_deliver(sequence, intended_ns, f"{outcome.name}: {outcome.reason}")
            return
        self._acknowledged += 1
        # The broker answers a retry of a batch that it holds already without an offset in some cases; then
        # the offset is negative, and the record is acknowledged all the same.
        self._deliveries.append(
            (
                sequence,
                outcome.partition(),
                outcome.offset(),
                self._wall_us(intended_ns),
                self._wall_us(now_ns),
                (now_ns - intended_ns) // 1000,
                None,
            )
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
