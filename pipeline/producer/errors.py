"""What `ReliableProducer` raises. Each message says what happened, and what can be done."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipeline.producer.delivery import Failure, FlushReport


class ProducerError(Exception):
    """Base of them all."""


class SettingsError(ProducerError):
    """The settings contradict one another, or librdkafka does not know one of them. No producer was made."""


class NotSentError(ProducerError):
    """`send` did not take the record: it was not written and will not be. The same call may be made again."""


class QueueFullError(NotSentError):
    """The queue stayed full for the whole of the time that `send` was allowed to wait."""


class CircuitOpenError(NotSentError):
    """The breaker admitted no record within the time that `send` was allowed to wait."""


class ThrottledError(NotSentError):
    """The client-side throttle dropped the record, as the cluster takes fewer records than it is offered."""


class FatalProducerError(ProducerError):
    """The producer can send nothing more. Close it, mend the cause, and make a new one."""


class ClosedError(ProducerError):
    """The producer was closed."""


class CallbackError(ProducerError):
    """A delivery callback raised; its exception is the cause. It is raised once, by the next call of the producer.

    The deliveries after that one were reported as usual.
    """


class TransactionAbortedError(ProducerError):
    """The transaction was aborted, nothing of it is visible to readers of committed records. It may be tried again."""


class DeliveryError(ProducerError):
    """The exception of a future whose record was not delivered."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(str(failure))
        self.failure = failure


class UndeliveredError(ProducerError):
    """A `with` block ended, and records that had neither callback nor future were not delivered."""

    def __init__(self, report: FlushReport) -> None:
        first = f"; the first: {report.failures[0]}" if report.failures else ""
        super().__init__(f"{report.undelivered} records were not delivered{first}")
        self.report = report
