"""Whether the next record may be sent: the one place that knows of fatal errors, the breaker and the throttle."""

from __future__ import annotations

import threading
from enum import Enum, auto

from pipeline.producer.breaker import BreakerState, CircuitBreaker
from pipeline.producer.errors import ClosedError, FatalProducerError
from pipeline.producer.throttle import AdaptiveThrottle


class Verdict(Enum):
    ADMITTED = auto()
    """The record is to be sent now, or `released` to be called."""
    CIRCUIT_OPEN = auto()
    THROTTLED = auto()
    BACKLOG = auto()
    """So many failed records wait for a retry or the dead-letter topic that no more may come."""


class Admission:
    """Its methods may be called by any thread. `now` is monotonic time in seconds."""

    def __init__(self, breaker: CircuitBreaker | None, throttle: AdaptiveThrottle | None) -> None:
        self._lock = threading.Lock()
        self._breaker = breaker
        self._throttle = throttle
        self._fatal: str | None = None
        self._is_closed = False
        self._has_backlog = False
        self._callback_error: Exception | None = None
        self._delivered_told = 0
        self.is_dead = False
        self.is_free = throttle is None
        """Nothing stands in the way of any record. The hot path looks at this alone."""
        self.wants_successes = False
        """Each success is to be told by `succeeded`. Else their number is enough, by `refresh`."""

    def admit(self, now: float) -> Verdict:
        """Raises FatalProducerError, ClosedError."""
        with self._lock:
            if self._fatal is not None:
                raise FatalProducerError(self._fatal)
            if self._is_closed:
                raise ClosedError("the producer was closed")
            return self._admit(now)

    def admit_again(self, now: float) -> Verdict:
        """For a record that `send` took before: `close` and the backlog do not stop it. Raises FatalProducerError."""
        with self._lock:
            if self._fatal is not None:
                raise FatalProducerError(self._fatal)
            return self._admit(now, ignores_backlog=True)

    def _admit(self, now: float, ignores_backlog: bool = False) -> Verdict:
        if self._has_backlog and not ignores_backlog:
            return Verdict.BACKLOG
        if self._throttle is not None and not self._throttle.admit(now):
            return Verdict.THROTTLED
        if self._breaker is not None and not self._breaker.admit(now):
            return Verdict.CIRCUIT_OPEN
        return Verdict.ADMITTED

    def released(self) -> None:
        """A record that was admitted was not sent after all, or nothing was heard of the cluster about it."""
        with self._lock:
            if self._breaker is not None:
                self._breaker.released()

    def succeeded(self, sent_at: float, now: float) -> None:
        """The cluster answered one record, with whatever answer."""
        with self._lock:
            if self._breaker is not None and self._breaker.state(now) is not BreakerState.CLOSED:
                self._breaker.succeeded(sent_at, now)
                self._update(now)

    def failed(self, sent_at: float, now: float) -> None:
        """The cluster could not take a record."""
        with self._lock:
            if self._breaker is not None:
                self._breaker.failed(sent_at, now)
                self._update(now)

    def refresh(self, delivered: int, has_backlog: bool, now: float) -> None:
        """To be called every now and then. `delivered`: all records acknowledged so far."""
        with self._lock:
            count = delivered - self._delivered_told
            self._delivered_told = delivered
            self._has_backlog = has_backlog
            if count and self._throttle is not None:
                self._throttle.accepted(count, now)
            if count and self._breaker is not None and self._breaker.state(now) is BreakerState.CLOSED:
                self._breaker.succeeded(now, now, count)
            self._update(now)

    def stop(self, why: str, *, is_dead: bool = False) -> None:
        """A fatal error. The first is the cause of those after it, so it is kept. `is_dead`: librdkafka sends nothing
        more, not even what is queued."""
        with self._lock:
            self.is_dead |= is_dead
            if self._fatal is None:
                self._fatal = why
            self.is_free = False

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            self.is_free = False

    def keep_callback_error(self, raised: Exception) -> None:
        """confluent-kafka would turn it into a SystemError of `poll`; here the application's next call raises it."""
        with self._lock:
            if self._callback_error is None:
                self._callback_error = raised
            self.is_free = False

    def take_callback_error(self) -> Exception | None:
        with self._lock:
            error, self._callback_error = self._callback_error, None
        return error

    @property
    def fatal(self) -> str | None:
        return self._fatal

    def breaker_state(self, now: float) -> BreakerState:
        with self._lock:
            return BreakerState.CLOSED if self._breaker is None else self._breaker.state(now)

    def breaker_openings(self) -> int:
        return 0 if self._breaker is None else self._breaker.openings

    def _update(self, now: float) -> None:
        is_broken = self._breaker is not None and self._breaker.state(now) is not BreakerState.CLOSED
        self.wants_successes = is_broken
        self.is_free = (
            self._fatal is None
            and self._callback_error is None
            and self._throttle is None
            and not (is_broken or self._has_backlog or self._is_closed)
        )
