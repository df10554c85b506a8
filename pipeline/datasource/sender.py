"""One task's sending at least once: an idempotent producer, and no end before every record is acknowledged."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from pipeline.datasource.cluster_view import QUIET, checked_client
from pipeline.datasource.errors import DeliveryFailed
from pipeline.datasource.options import WriteOptions
from pipeline.datasource.rows import Record, records

_QUEUE_FULL_WAIT_S = 0.1
# librdkafka reports every record by its message.timeout.ms; the margin is for the report to arrive.
_FLUSH_MARGIN_S = 10.0
_DEFAULT_MESSAGE_TIMEOUT_MS = 120_000
_CLIENT_CONFIG: dict[str, Any] = {
    **QUIET,
    "enable.idempotence": True,
    "acks": "all",
    "linger.ms": 5,
    # As long as Java's delivery.timeout.ms. librdkafka's own five minutes look like a task that hangs.
    "message.timeout.ms": _DEFAULT_MESSAGE_TIMEOUT_MS,
    # The same key goes to the same partition as with the official sink.
    "partitioner": "murmur2_random",
    # A frozen leader leaves its connections open; only this time tells it.
    "socket.timeout.ms": 10_000,
    "request.timeout.ms": 10_000,
}


class Sender:
    """Its methods raise DeliveryFailed as soon as one record is known not to have been acknowledged."""

    def __init__(self, options: WriteOptions, own_config: dict[str, Any]) -> None:
        config = {**_CLIENT_CONFIG, **options.client_config, **own_config}
        self._flush_timeout_s = int(config["message.timeout.ms"]) / 1000 + _FLUSH_MARGIN_S
        self._failed = 0
        self._first_failure = ""
        self.sent = 0
        # A call per acknowledged record would cost a third of the throughput.
        self.producer: Producer = checked_client(
            Producer,
            {
                **config,
                "delivery.report.only.error": True,
                "on_delivery": self._not_delivered,
            },
        )

    def send(self, rows: Iterable[Record]) -> None:
        produce, poll = self.producer.produce, self.producer.poll
        for record in rows:
            while True:
                try:
                    produce(record.topic, record.value, record.key, record.partition, headers=record.headers)
                    break
                except BufferError:
                    self._called_back(poll, _QUEUE_FULL_WAIT_S)
                    self._check()
                except KafkaException as error:
                    raise DeliveryFailed(
                        f"a record for {record.topic} was refused: {error.args[0]}"
                    ) from error
            self.sent += 1
        self._called_back(poll, 0)
        self._check()

    def flush(self) -> None:
        """Wait until every record is acknowledged."""
        deadline = time.monotonic() + self._flush_timeout_s
        while (left := self._called_back(self.producer.flush, 1.0)) > 0:
            self._check()
            if time.monotonic() > deadline:
                raise DeliveryFailed(
                    f"{left} of {self.sent} records have no acknowledgement after {self._flush_timeout_s:.0f} s"
                )
        self._check()

    def discard(self) -> None:
        """Send nothing more: what is queued is dropped, and what is under way is not waited for."""
        self.producer.purge()

    def _not_delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            return
        self._failed += 1
        self._first_failure = self._first_failure or f"{message.topic()}-{message.partition()}: {error}"

    def _called_back(self, call: Callable[[float], int], timeout_s: float) -> int:
        """Run the producer's callbacks; what its call returns.

        A fatal error, such as being fenced by a later attempt, comes as KafkaException; or as SystemError, of this
        cause or of none, because the client calls back once more with the exception set already. Then the first record
        that failed tells the reason, if its report came.
        """
        try:
            return call(timeout_s)
        except (KafkaException, SystemError) as error:
            reason = (
                error
                if isinstance(error, KafkaException)
                else error.__cause__ or self._first_failure or error
            )
            raise DeliveryFailed(f"the producer cannot go on: {reason}") from error

    def _check(self) -> None:
        if self._failed:
            raise DeliveryFailed(
                f"{self._failed} records were not acknowledged, of {self.sent} that the task has sent;"
                f" the first: {self._first_failure}"
            )


def send_at_least_once(options: WriteOptions, batches: Iterator[pa.RecordBatch]) -> int:
    """How many records were sent; all of them are acknowledged."""
    sender = Sender(options, {})
    try:
        for batch in batches:
            sender.send(records(batch, options.topic))
        sender.flush()
    except BaseException:
        sender.discard()
        raise
    return sender.sent
