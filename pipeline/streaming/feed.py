"""The feed: records at a fixed rate, each noted with what became of it."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.producer import Failure, Outcome, ReliableProducer
from pipeline.run_files import DELIVERIES
from pipeline.streaming.spec import StreamSpec

DELIVERY_SCHEMA = pa.schema(
    [
        ("sequence", pa.int64()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("intended_at_us", pa.int64()),
        ("acknowledged_at_us", pa.int64()),
        ("error", pa.string()),
    ]
)
# Longer than any fail-over, and than a broker needs to come back.
_DELIVERY_TIMEOUT_MS = 120_000


class Feed(threading.Thread):
    """Sends all records of the specification, each when it is due, and waits until the outcome of each is known.

    Records that come due while the queue is full are sent late, not left out.
    """

    def __init__(self, spec: StreamSpec, bootstrap_server: str) -> None:
        super().__init__(name="feed", daemon=True)
        self.failure: BaseException | None = None
        """Why it did not come to its end."""
        self.acknowledged = 0
        self.failed = 0
        self._spec = spec
        self._stop_sending = threading.Event()
        self._rows: list[tuple[int, str, int | None, int | None, int, int | None, str | None]] = []
        self._producer = ReliableProducer(
            {
                "bootstrap.servers": bootstrap_server,
                "client.id": "varve-pipeline-feed",
                "delivery.timeout.ms": _DELIVERY_TIMEOUT_MS,
                "log_level": 2,
                "reconnect.backoff.max.ms": 1_000,
            }
        )

    def stop(self) -> None:
        """Send no more; what is under way is still awaited by the thread."""
        self._stop_sending.set()

    def run(self) -> None:
        try:
            self._send_all()
            self._producer.close()
        except BaseException as error:
            # For the thread that started it.
            self.failure = error

    def _send_all(self) -> None:
        spec, topic = self._spec, self._spec.topics.source
        for sequence in range(spec.records):
            due_ms = spec.timestamp_ms(sequence)
            if (wait_s := due_ms / 1000 - time.time()) > 0:
                self._stop_sending.wait(wait_s)
            if self._stop_sending.is_set():
                return
            self._producer.send(
                topic,
                spec.value(sequence),
                spec.key(sequence),
                timestamp_ms=due_ms,
                on_delivery=lambda outcome, sequence=sequence: self._note(sequence, outcome),  # type: ignore[misc]
            )

    def _note(self, sequence: int, outcome: Outcome) -> None:
        """Called by the producer's thread, one at a time."""
        topic = self._spec.topics.source
        intended_us = self._spec.timestamp_ms(sequence) * 1000
        if isinstance(outcome, Failure):
            self.failed += 1
            self._rows.append((sequence, topic, None, None, intended_us, None, str(outcome)))
            return
        self.acknowledged += 1
        now_us = time.time_ns() // 1000
        offset = outcome.offset()
        # A broker may answer a batch sent twice without saying where it is.
        known = offset if offset is not None and offset >= 0 else None
        self._rows.append((sequence, topic, outcome.partition(), known, intended_us, now_us, None))

    def write(self, run: Path) -> None:
        """Write what became of each record, when the thread has ended."""
        folder = run / DELIVERIES
        folder.mkdir()
        columns = [
            pa.array(column, field.type)
            for column, field in zip(zip(*self._rows, strict=True), DELIVERY_SCHEMA, strict=True)
        ]
        pq.write_table(pa.table(columns, schema=DELIVERY_SCHEMA), folder / "part-0.parquet")
        # As Spark marks what it has finished.
        (folder / "_SUCCESS").touch()
