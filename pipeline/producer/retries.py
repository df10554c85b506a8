"""Which records are sent again by this package, after librdkafka has given them up; and which wait for it."""

from __future__ import annotations

import heapq
import itertools
from dataclasses import dataclass, field

from pipeline.producer.backoff import FullJitterBackoff
from pipeline.producer.classification import ErrorClass, ErrorRule, Written
from pipeline.producer.delivery import Failure, OnDelivery, Record


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Retries of the application, on top of those of librdkafka. The defaults can neither duplicate nor reorder.

    A retry comes after records that were sent later. So a keyed record, whose key has an order, is not retried unless
    `keyed` says that order does not matter; and a record that may be in the log is not, unless
    `possibly_written` says that duplicates do not matter.
    """

    max_attempts: int = 5
    """Including the first."""
    keyed: bool = False
    possibly_written: bool = False
    attempt_timeout_ms: int | None = None
    """How long librdkafka tries within one attempt. None: a quarter of `delivery.timeout.ms`. It holds for
    retries and dead letters; with `possibly_written` also for the first attempt, as nothing would be left of the bound
    else."""
    backoff: FullJitterBackoff = field(default_factory=FullJitterBackoff)

    def __post_init__(self) -> None:
        if self.max_attempts < 1:
            raise ValueError("max_attempts includes the first, so it is at least 1")
        if self.attempt_timeout_ms is not None and self.attempt_timeout_ms < 1:
            raise ValueError("attempt_timeout_ms must be positive")

    def wants(self, rule: ErrorRule, attempts: int, is_keyed: bool) -> bool:
        """Whether a record that failed so is sent again, if there is time for it.

        A record that shared the fate of its batch is sent again once, alone; what it gets then is its own.
        """
        if attempts >= self.max_attempts or (is_keyed and not self.keyed):
            return False
        if rule.error_class is ErrorClass.RECORD and not (rule.is_of_batch and attempts == 1):
            return False
        if rule.error_class is ErrorClass.FATAL:
            return False
        return rule.written is Written.NO or (rule.written is Written.MAYBE and self.possibly_written)


@dataclass(slots=True)
class Attempt:
    """A record on the slow path: it failed once, or is about to become a dead letter."""

    record: Record
    on_delivery: OnDelivery | None
    started_at: float
    """Monotonic time at which `send` took it, in seconds."""
    attempts: int
    sent_at: float
    """Of the latest attempt."""
    failure: Failure | None = None
    """Of the latest attempt. A dead letter carries it."""
    is_dead_letter: bool = False


class PendingAttempts:
    """Attempts that wait for their time, the earliest first; those of one time in the order in which they came."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Attempt]] = []
        self._numbers = itertools.count()

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, due_at: float, attempt: Attempt) -> None:
        heapq.heappush(self._heap, (due_at, next(self._numbers), attempt))

    def take_due(self, now: float) -> list[Attempt]:
        due = []
        while self._heap and self._heap[0][0] <= now:
            due.append(heapq.heappop(self._heap)[2])
        return due

    def take_all(self) -> list[Attempt]:
        taken = [entry[2] for entry in sorted(self._heap)]
        self._heap.clear()
        return taken
