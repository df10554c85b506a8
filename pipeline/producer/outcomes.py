"""What becomes of a record after librdkafka has had its say: told, sent again, or put on the dead-letter topic.

Everything here runs on the producer's polling thread, except `refused`, `take_failures` and `counters_copy`.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer, ThrottleEvent

from pipeline.producer.admission import Admission, Verdict
from pipeline.producer.classification import ErrorClass, ErrorRule, classify
from pipeline.producer.counters import Counters
from pipeline.producer.dead_letter import dead_letter_of
from pipeline.producer.delivery import DeadLetter, Failure, Headers, OnDelivery, Outcome, Record
from pipeline.producer.errors import FatalProducerError, SettingsError
from pipeline.producer.retries import Attempt, PendingAttempts, RetryPolicy
from pipeline.producer.settings import EXPIRY_SCAN_MS, ProducerSettings

# Failures that nobody was told of are kept until `flush`; of further ones only the number.
_MAX_KEPT_FAILURES = 10_000
# A retry that finds no room, or a closed gate, looks again after this.
_LOOK_AGAIN_S = 0.05
_GIVEN_UP_CODES = (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)

Report = Callable[[OnDelivery | None, Headers | None, int, KafkaError | None, Message], None]


class Outcomes:
    def __init__(
        self,
        settings: ProducerSettings,
        retries: RetryPolicy,
        dead_letter_topic: str | None,
        error_classes: Mapping[int, ErrorClass],
        admission: Admission,
        rng: Random,
    ) -> None:
        self._retries = retries
        self._dead_letter_topic = dead_letter_topic
        self._classes = error_classes
        self._admission = admission
        self._rng = rng
        self._side_client = settings.side_client
        self._side: Producer | None = None
        self._bound_s = settings.bound_ms / 1000
        # What a retry takes at most, with librdkafka's delay in noticing that its time is over.
        self._attempt_s = (settings.attempt_timeout_ms + EXPIRY_SCAN_MS) / 1000
        self._is_transactional = settings.is_transactional
        self._pending = PendingAttempts()
        self._max_pending = settings.queue_max_records
        self._refused: deque[tuple[Attempt, KafkaError]] = deque()
        self._lock = threading.Lock()
        self._failures: list[Failure] = []
        self._omitted = 0
        self._is_giving_up = False
        # Failed records whose outcome is still open, other than `_refused`.
        self._open = 0
        self.counters = Counters()
        self.report = self._hot_path()

    # -- reports of librdkafka -----------------------------------------------------------------------------

    def _hot_path(self) -> Report:
        """The report of a first attempt. Nothing is done for a success that can be left out; a closure is faster
        than a method."""
        counters, admission = self.counters, self._admission

        def report(
            on_delivery: OnDelivery | None,
            headers: Headers | None,
            timestamp_ms: int,
            error: KafkaError | None,
            message: Message,
        ) -> None:
            if error is not None:
                self._first_attempt_failed(on_delivery, headers, timestamp_ms, error, message)
                return
            counters.delivered += 1
            if admission.wants_successes:
                self._tell_success(message)
            if on_delivery is not None:
                try:
                    on_delivery(message)
                except Exception as raised:
                    admission.keep_callback_error(raised)

        return report

    def _first_attempt_failed(
        self,
        on_delivery: OnDelivery | None,
        headers: Headers | None,
        timestamp_ms: int,
        error: KafkaError,
        message: Message,
    ) -> None:
        self._open += 1
        # A report has neither headers nor timestamp. The latency tells when the record was sent.
        latency_s = message.latency() or 0.0
        sent_at = time.monotonic() - latency_s
        partition = message.partition()
        record = Record(
            topic=message.topic() or "",
            value=message.value(),
            key=message.key(),
            partition=-1 if partition is None else partition,
            timestamp_ms=timestamp_ms or int((time.time() - latency_s) * 1000),
            headers=headers or (),
        )
        self._failed(Attempt(record, on_delivery, sent_at, 1, sent_at), error)

    def _attempt_reported(self, attempt: Attempt, error: KafkaError | None, message: Message) -> None:
        """The report of a retry or a dead letter."""
        if attempt.is_dead_letter:
            self._dead_letter_reported(attempt, error, message)
        elif error is not None:
            self._failed(attempt, error)
        else:
            self.counters.delivered += 1
            self._tell_success(message)
            self._tell(attempt.on_delivery, message)
            self._open -= 1

    def _dead_letter_reported(self, attempt: Attempt, error: KafkaError | None, message: Message) -> None:
        assert attempt.failure is not None
        if error is not None:
            self._no_dead_letter(attempt, error)
            return
        self.counters.dead_letters += 1
        place = DeadLetter(message.topic() or "", message.partition() or 0, message.offset() or 0)
        attempt.failure = replace(attempt.failure, dead_letter=place)
        self._report(attempt)

    def _no_dead_letter(self, attempt: Attempt, error: KafkaError) -> None:
        assert attempt.failure is not None
        self.counters.dead_letters_failed += 1
        attempt.failure = replace(attempt.failure, dead_letter_error=f"{error.name()}, {error.str()}")
        self._report(attempt)

    def make_client(self, client: Mapping[str, Any]) -> Producer:
        """A librdkafka producer whose events are counted here, and given to the application's callbacks. Raises
        SettingsError."""
        own_error_cb, own_throttle_cb = client.get("error_cb"), client.get("throttle_cb")

        def error_cb(error: KafkaError) -> None:
            self.client_event(error)
            if own_error_cb is not None:
                self._call(partial(own_error_cb, error))

        def throttle_cb(event: ThrottleEvent) -> None:
            self.counters.throttled_by_broker_ms += round(event.throttle_time * 1000)
            if own_throttle_cb is not None:
                self._call(partial(own_throttle_cb, event))

        try:
            return Producer({**client, "error_cb": error_cb, "throttle_cb": throttle_cb})
        except (KafkaException, TypeError, ValueError) as raised:
            raise SettingsError(f"librdkafka does not accept the settings: {raised}") from raised

    def client_event(self, error: KafkaError) -> None:
        """Connections lost, credentials refused, or a fatal error."""
        self.counters.client_events[error.name()] += 1
        if error.fatal():
            self._admission.stop(f"{error.name()}: {error.str()}", is_dead=True)

    # -- failures ------------------------------------------------------------------------------------------

    def refused(self, record: Record, on_delivery: OnDelivery | None, error: KafkaError) -> None:
        """librdkafka did not take a record from `send`. Its failure is told like all others, by the polling thread."""
        now = time.monotonic()
        self._refused.append((Attempt(record, on_delivery, now, 1, now), error))

    def _failed(self, attempt: Attempt, error: KafkaError, is_local: bool = False) -> None:
        now = time.monotonic()
        rule = classify(error, self._classes)
        self.counters.attempt_failed(rule)
        attempt.failure = Failure(
            record=attempt.record,
            code=error.code(),
            name=rule.name,
            reason=error.str(),
            error_class=rule.error_class,
            written=rule.written,
            attempts=attempt.attempts,
            elapsed_ms=round((now - attempt.started_at) * 1000),
        )
        self._tell_failure(attempt, rule, is_local, now)
        if self._is_giving_up or not (
            (not is_local and self._retry(attempt, rule, now)) or self._bury(attempt, rule, now)
        ):
            self._report(attempt)

    def _tell_failure(self, attempt: Attempt, rule: ErrorRule, is_local: bool, now: float) -> None:
        """What the failure says of the cluster."""
        assert attempt.failure is not None
        if rule.error_class is ErrorClass.FATAL:
            self._admission.stop(f"{rule.name}: {attempt.failure.reason}. {rule.reason}")
        if is_local or attempt.failure.code in _GIVEN_UP_CODES:
            self._admission.released()
        elif rule.error_class is ErrorClass.TRANSIENT:
            self._admission.failed(attempt.sent_at, now)
        else:
            # A broker that refuses a record is well.
            self._admission.succeeded(attempt.sent_at, now)

    def _retry(self, attempt: Attempt, rule: ErrorRule, now: float) -> bool:
        policy = self._retries
        if not policy.wants(rule, attempt.attempts, attempt.record.key is not None):
            return False
        # A batch is taken apart at once, so that its records stay in order among themselves.
        is_alone_next = rule.is_of_batch or rule.name == "_INVALID_DIFFERENT_RECORD"
        due_at = now if is_alone_next else now + policy.backoff.delay_s(attempt.attempts, self._rng)
        if not self._fits(attempt, due_at):
            return False
        self._pending.add(due_at, attempt)
        return True

    def _fits(self, attempt: Attempt, due_at: float) -> bool:
        """Whether an attempt that begins then has an outcome by the record's bound, whatever happens."""
        return due_at + self._attempt_s <= attempt.started_at + self._bound_s

    def _bury(self, attempt: Attempt, rule: ErrorRule, now: float) -> bool:
        topic = self._dead_letter_topic
        if topic is None or rule.error_class is not ErrorClass.RECORD or attempt.record.topic == topic:
            return False
        attempt.is_dead_letter = True
        self._pending.add(now, attempt)
        return True

    # -- the polling thread's turn ---------------------------------------------------------------------------

    @property
    def side(self) -> Producer | None:
        """The producer of retries and dead letters, once there was one."""
        return self._side

    def outstanding(self) -> int:
        """Records that failed, and whose outcome is still open."""
        return len(self._refused) + self._open

    def turn(self) -> None:
        """Do what is due."""
        self._take_refused()
        now = time.monotonic()
        for attempt in self._pending.take_due(now):
            self._start(attempt, now)
        has_backlog = self.outstanding() >= self._max_pending
        self._admission.refresh(self.counters.delivered, has_backlog, now)

    def _take_refused(self) -> None:
        while self._refused:
            attempt, error = self._refused[0]
            self._open += 1
            self._refused.popleft()
            self._failed(attempt, error, is_local=True)

    def give_up(self) -> None:
        """What waits is reported as failed with its latest error; what fails from now on is reported at once."""
        self._is_giving_up = True
        self._take_refused()
        for attempt in self._pending.take_all():
            if attempt.is_dead_letter:
                self._no_dead_letter(attempt, KafkaError(KafkaError._PURGE_QUEUE))
            else:
                self._report(attempt)
        if self._side is not None:
            self._side.purge()

    def _start(self, attempt: Attempt, now: float) -> None:
        record = attempt.record
        if attempt.is_dead_letter:
            assert attempt.failure is not None and self._dead_letter_topic is not None
            record = dead_letter_of(attempt.failure, self._dead_letter_topic, int(time.time() * 1000))
        else:
            # The breaker may have kept it waiting for too long.
            if not self._fits(attempt, now):
                self._report(attempt)
                return
            try:
                verdict = self._admission.admit_again(now)
            except FatalProducerError:
                self._report(attempt)
                return
            if verdict is not Verdict.ADMITTED:
                self._pending.add(now + self._refused_for_s(verdict, attempt), attempt)
                return
        self._produce_aside(attempt, record, now)

    def _refused_for_s(self, verdict: Verdict, attempt: Attempt) -> float:
        """How long a retry waits that may not be made now. What the throttle dropped it has counted as a request, so
        that asking often would keep it dropping; a breaker does not count who asks."""
        if verdict is Verdict.THROTTLED:
            return max(_LOOK_AGAIN_S, self._retries.backoff.delay_s(attempt.attempts, self._rng))
        return _LOOK_AGAIN_S

    def _produce_aside(self, attempt: Attempt, record: Record, now: float) -> None:
        if self._side is None:
            self._side = self.make_client(self._side_client)
        if not attempt.is_dead_letter:
            attempt.attempts += 1
            attempt.sent_at = now
        try:
            self._side.produce(
                record.topic,
                record.value,
                record.key,
                partition=record.partition,
                timestamp=record.timestamp_ms,
                headers=list(record.headers),
                on_delivery=partial(self._attempt_reported, attempt),
            )
        except BufferError:
            if not attempt.is_dead_letter:
                attempt.attempts -= 1
                self._admission.released()
            self._pending.add(now + _LOOK_AGAIN_S, attempt)
        except KafkaException as raised:
            if attempt.is_dead_letter:
                self._no_dead_letter(attempt, raised.args[0])
            else:
                self._failed(attempt, raised.args[0], is_local=True)
        else:
            if not attempt.is_dead_letter:
                self.counters.retries += 1

    # -- telling -------------------------------------------------------------------------------------------

    def _tell_success(self, message: Message) -> None:
        now = time.monotonic()
        self._admission.succeeded(now - (message.latency() or 0.0), now)

    def _report(self, attempt: Attempt) -> None:
        failure = attempt.failure
        assert failure is not None
        self.counters.failed += 1
        # What becomes of the records of a transaction is told by the transaction.
        is_untold = attempt.on_delivery is None and not self._is_transactional
        if is_untold or self._is_giving_up:
            with self._lock:
                if self._is_giving_up or len(self._failures) < _MAX_KEPT_FAILURES:
                    self._failures.append(failure)
                else:
                    self._omitted += 1
        self._tell(attempt.on_delivery, failure)
        self._open -= 1

    def _tell(self, on_delivery: OnDelivery | None, outcome: Outcome) -> None:
        if on_delivery is not None:
            self._call(partial(on_delivery, outcome))

    def _call(self, callback: Callable[[], object]) -> None:
        """Call what the application gave; an exception of it is raised by the application's next call."""
        try:
            callback()
        except Exception as raised:
            self._admission.keep_callback_error(raised)

    # -- asked by the application's threads --------------------------------------------------------------------

    def take_failures(self) -> tuple[tuple[Failure, ...], int]:
        """Failures that nobody was told of since the last call, and the number of those that were not kept."""
        with self._lock:
            taken = tuple(self._failures), self._omitted
            self._failures, self._omitted = [], 0
        return taken

    def counters_copy(self) -> Counters:
        counters = self.counters.copy()
        counters.breaker_openings = self._admission.breaker_openings()
        return counters
