"""The producer: `send` and what an application does with it. What happens after a failure is in `outcomes.py`."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from random import Random
from types import TracebackType
from typing import Any, Self

from confluent_kafka import KafkaError, KafkaException, Message

from pipeline.producer.admission import Admission, Verdict
from pipeline.producer.breaker import BreakerSettings, BreakerState, CircuitBreaker
from pipeline.producer.classification import ErrorClass, classify
from pipeline.producer.counters import Counters
from pipeline.producer.delivery import Failure, FlushReport, Headers, OnDelivery, Outcome, Record
from pipeline.producer.errors import (
    CallbackError,
    CircuitOpenError,
    DeliveryError,
    FatalProducerError,
    NotSentError,
    ProducerError,
    QueueFullError,
    ThrottledError,
    UndeliveredError,
)
from pipeline.producer.outcomes import Outcomes
from pipeline.producer.poller import Poller
from pipeline.producer.retries import RetryPolicy
from pipeline.producer.settings import producer_settings
from pipeline.producer.throttle import AdaptiveThrottle, ThrottleSettings
from pipeline.producer.transactions import TransactionCalls

# How long `send` waits before it asks the breaker again, if nothing wakes it.
_ASK_AGAIN_S = 0.05


class ReliableProducer:
    """A producer that keeps records safe, says what became of each, and stops when it should.

    One thread of its own polls for reports; delivery callbacks run there, one at a time, and should be short. All
    methods may be called by any thread; `flush`, `close` and `transaction` not by a delivery callback.

    Raises SettingsError where settings contradict one another or are unknown. The cluster need not be reachable yet.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        *,
        dead_letter_topic: str | None = None,
        retries: RetryPolicy | None = None,
        breaker: BreakerSettings | None = BreakerSettings(),  # noqa: B008 - frozen
        throttle: ThrottleSettings | None = None,
        error_classes: Mapping[int, ErrorClass] | None = None,
        rng: Random | None = None,
    ) -> None:
        """`settings`: librdkafka's, over the baseline of `settings.py`. `retries`: those beyond librdkafka's own.
        None is the safe default, `RetryPolicy(max_attempts=1)` none at all. `error_classes`: other classes for codes.
        """
        self._settings = producer_settings(settings, retries, dead_letter_topic)
        rng = Random() if rng is None else rng
        self._admission = Admission(
            None if breaker is None else CircuitBreaker(breaker),
            None if throttle is None else AdaptiveThrottle(throttle, rng),
        )
        if retries is None:
            retries = RetryPolicy(max_attempts=1) if self._settings.is_transactional else RetryPolicy()
        self._classes = error_classes or {}
        self._outcomes = Outcomes(
            self._settings, retries, dead_letter_topic, self._classes, self._admission, rng
        )
        main = self._outcomes.make_client(self._settings.client)
        # What the hot path uses, looked up once.
        self._produce: Callable[..., None] = main.produce
        self._report = self._outcomes.report
        self._list_topics = main.list_topics
        self._transactions = TransactionCalls(main, self._settings, self._admission, rng)
        self._poller = Poller(main, self._outcomes, self._admission, self._transactions)
        self._closing = threading.Lock()
        self._is_closed = False

    # -- sending -------------------------------------------------------------------------------------------

    def send(
        self,
        topic: str,
        value: str | bytes | None = None,
        key: str | bytes | None = None,
        *,
        on_delivery: OnDelivery | None = None,
        partition: int = -1,
        timestamp_ms: int = 0,
        headers: Headers | None = None,
        timeout_s: float | None = None,
    ) -> None:
        """Put a record into the queue; `on_delivery` is called once, with the delivered Message or a Failure.

        Waits while the queue is full or the breaker open, up to `timeout_s` (None: `max.block.ms`; 0: not at all), then
        raises QueueFullError or CircuitOpenError. Raises ThrottledError, FatalProducerError, ClosedError, and
        CallbackError for an earlier callback. When it raises, the record was not taken, and no callback comes.
        """
        if self._admission.is_free:
            try:
                self._produce(
                    topic,
                    value,
                    key,
                    partition,
                    partial(self._report, on_delivery, headers, timestamp_ms),
                    None,
                    timestamp_ms,
                    headers,
                )
                return
            except (BufferError, KafkaException):
                # The slow path tries once more, and knows what to do with it.
                pass
        record = Record(topic, _encoded(value), _encoded(key), partition, timestamp_ms, headers or ())
        self._send_slowly(record, on_delivery, timeout_s)

    def submit(
        self,
        topic: str,
        value: str | bytes | None = None,
        key: str | bytes | None = None,
        *,
        partition: int = -1,
        timestamp_ms: int = 0,
        headers: Headers | None = None,
        timeout_s: float | None = None,
    ) -> Future[Message]:
        """As `send`, with a future: its result is the Message, its exception DeliveryError. It cannot be cancelled."""
        future: Future[Message] = Future()
        future.set_running_or_notify_cancel()
        self.send(
            topic,
            value,
            key,
            on_delivery=partial(_resolve, future),
            partition=partition,
            timestamp_ms=timestamp_ms,
            headers=headers,
            timeout_s=timeout_s,
        )
        return future

    def _send_slowly(self, record: Record, on_delivery: OnDelivery | None, timeout_s: float | None) -> None:
        wait_s = self._settings.block_ms / 1000 if timeout_s is None else timeout_s
        deadline = time.monotonic() + wait_s
        waited_for_room = False
        while True:
            self._raise_callback_error()
            now = time.monotonic()
            verdict = self._admission.admit(now)
            if verdict is Verdict.THROTTLED:
                raise ThrottledError(
                    "the cluster takes fewer records than it is offered; this one was dropped"
                )
            if verdict is Verdict.ADMITTED:
                if self._try_produce(record, on_delivery):
                    return
                self._admission.released()
            if verdict is not Verdict.CIRCUIT_OPEN and not waited_for_room:
                waited_for_room = True
                self._outcomes.counters.queue_full_waits += 1
            if now >= deadline or self._poller.is_this_thread:
                raise self._not_sent(verdict, wait_s)
            self._poller.wait_for_turn(min(deadline - now, _ASK_AGAIN_S))

    def _try_produce(self, record: Record, on_delivery: OnDelivery | None) -> bool:
        """False: the queue is full."""
        try:
            self._produce(
                record.topic,
                record.value,
                record.key,
                record.partition,
                partial(self._report, on_delivery, record.headers, record.timestamp_ms),
                None,
                record.timestamp_ms,
                list(record.headers),
            )
        except BufferError:
            return False
        except KafkaException as raised:
            self._refused(record, on_delivery, raised.args[0])
        except BaseException:
            self._admission.released()
            raise
        return True

    def _refused(self, record: Record, on_delivery: OnDelivery | None, error: KafkaError) -> None:
        if error.code() == KafkaError._STATE and self._settings.is_transactional:
            self._admission.released()
            raise self._transactions.not_open(error)
        rule = classify(error, self._classes)
        if rule.error_class is ErrorClass.FATAL:
            self._admission.stop(f"{rule.name}: {error.str()}. {rule.reason}")
            raise FatalProducerError(self._admission.fatal)
        self._outcomes.refused(record, on_delivery, error)

    def _not_sent(self, verdict: Verdict, wait_s: float) -> NotSentError:
        if verdict is Verdict.CIRCUIT_OPEN:
            return CircuitOpenError(
                f"the cluster took no records lately, so the breaker lets none through; waited {wait_s:g} s"
            )
        number = self._settings.queue_max_records
        kbytes = self._settings.client["queue.buffering.max.kbytes"]
        where = " (a delivery callback cannot wait for it)" if self._poller.is_this_thread else ""
        return QueueFullError(
            f"the queue stayed full for {wait_s:g} s{where}: {len(self)} records are not acknowledged yet"
            f" (queue.buffering.max.messages={number}, queue.buffering.max.kbytes={kbytes})"
        )

    # -- waiting -------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """Records whose outcome is still open, and for a moment also events of librdkafka's own."""
        return self._poller.outstanding()

    def __bool__(self) -> bool:
        return True

    def flush(self, timeout_s: float | None = None) -> FlushReport:
        """Send what is queued at once, and wait until nothing is outstanding.

        None waits as long as it takes, which is at most `delivery.timeout.ms` after the last record, and longer where
        dead letters have to be written. Raises CallbackError; a fatal error shows in the failures.
        """
        self._poller.refuse_callbacks("flush")
        self._raise_callback_error()
        left = self._poller.wait_until_empty(_deadline(timeout_s))
        self._raise_callback_error()
        failures, omitted = self._outcomes.take_failures()
        return FlushReport(left, failures, omitted)

    def close(self, timeout_s: float | None = None) -> FlushReport:
        """Flush, give up what is left after `timeout_s`, and end the polling thread. A second call does nothing.

        The records given up are reported to their callbacks, and are in the answer as well: `_PURGE_QUEUE` was never
        sent, `_PURGE_INFLIGHT` may be in the log.
        """
        self._poller.refuse_callbacks("close the producer")
        with self._closing:
            if self._is_closed:
                return FlushReport(0)
            self._admission.close()
            self._poller.stop(_deadline(timeout_s))
            self._is_closed = True
        self._raise_callback_error()
        failures, omitted = self._outcomes.take_failures()
        return FlushReport(0, failures, omitted)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close. Raises UndeliveredError for records that failed and had neither callback nor future, unless the block
        ended with an exception of its own."""
        report = self.close()
        if kind is None and report.undelivered:
            raise UndeliveredError(report)

    def _raise_callback_error(self) -> None:
        error = self._admission.take_callback_error()
        if error is not None:
            raise CallbackError(f"a delivery callback raised {type(error).__name__}: {error}") from error

    # -- transactions --------------------------------------------------------------------------------------

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """What the block sends becomes visible as a whole, or, if it raises, not at all. Needs `transactional.id`.

        Raises TransactionAbortedError when the transaction could not be committed and was aborted: the block may be run
        again. Raises FatalProducerError when a newer producer has the same transactional.id.
        """
        self._poller.refuse_callbacks("run a transaction")
        self._transactions.begin()
        try:
            yield
        except BaseException:
            self._poller.run(self._transactions.abort)
            raise
        self._poller.run(self._transactions.commit)

    # -- asking --------------------------------------------------------------------------------------------

    def partition_count(self, topic: str, timeout_s: float = 30) -> int:
        """Partitions of a topic. After this the first record need not wait for metadata. Raises ProducerError where no
        broker answers in time, or the topic does not exist."""
        try:
            found = self._list_topics(topic, timeout=timeout_s).topics[topic]
        except KafkaException as raised:
            raise ProducerError(f"no metadata of {topic}: {raised.args[0].str()}") from raised
        if found.error is not None:
            raise ProducerError(f"no metadata of {topic}: {found.error.str()}")
        return len(found.partitions)

    def counters(self) -> Counters:
        """A copy of the numbers so far."""
        return self._outcomes.counters_copy()

    @property
    def breaker_state(self) -> BreakerState:
        return self._admission.breaker_state(time.monotonic())

    @property
    def fatal_error(self) -> str | None:
        """Why the producer can send nothing more; None while it can."""
        return self._admission.fatal


def _deadline(timeout_s: float | None) -> float | None:
    return None if timeout_s is None else time.monotonic() + timeout_s


def _encoded(text: str | bytes | None) -> bytes | None:
    return text.encode() if isinstance(text, str) else text


def _resolve(future: Future[Message], outcome: Outcome) -> None:
    if isinstance(outcome, Failure):
        future.set_exception(DeliveryError(outcome))
    else:
        future.set_result(outcome)
