"""The values that tell what became of a record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from confluent_kafka import Message

from pipeline.producer.classification import ErrorClass, Written

Headers = Sequence[tuple[str, str | bytes | None]]


@dataclass(frozen=True, slots=True)
class Record:
    """A record as it was given to `send`; text is UTF-8 by now."""

    topic: str
    value: bytes | None
    key: bytes | None
    partition: int = -1
    """-1: the partitioner chooses."""
    timestamp_ms: int = 0
    """0: the time at which it was sent."""
    headers: Headers = ()


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Where the copy of a refused record lies."""

    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Failure:
    """A record that was not delivered, once nothing more will be done for it."""

    record: Record
    code: int
    """As in KafkaError: negative for errors of the client, positive for those of a broker."""
    name: str
    """Of the code, for example MSG_SIZE_TOO_LARGE or _MSG_TIMED_OUT."""
    reason: str
    """What librdkafka or the broker said of it."""
    error_class: ErrorClass
    written: Written
    """Whether the record may be in the log after all. To send it again is safe only if this is `Written.NO`."""
    attempts: int
    elapsed_ms: int
    """Since `send` took the record, over all attempts."""
    dead_letter: DeadLetter | None = None
    dead_letter_error: str | None = None
    """Why the record is not on the dead-letter topic, although it should be."""

    def __str__(self) -> str:
        partition = f"-{self.record.partition}" if self.record.partition >= 0 else ""
        times = "" if self.attempts == 1 else f" after {self.attempts} attempts"
        kept = f"; it is on {self.dead_letter.topic}" if self.dead_letter is not None else ""
        if self.dead_letter_error is not None:
            kept = f"; the dead-letter topic did not take it: {self.dead_letter_error}"
        return (
            f"record for {self.record.topic}{partition} not delivered{times}, {self.elapsed_ms} ms:"
            f" {self.name}, {self.reason} ({self.error_class}, {self.written.description}){kept}"
        )


Outcome = Message | Failure
"""A delivered record as confluent-kafka's Message (partition, offset, timestamp, latency), or what went wrong."""

OnDelivery = Callable[[Outcome], None]


@dataclass(frozen=True, slots=True)
class FlushReport:
    """What `flush` and `close` leave behind."""

    outstanding: int
    """Records whose outcome is still open. Always 0 after `close`."""
    failures: tuple[Failure, ...] = field(default=())
    """Not delivered, and told to nobody: these records had neither callback nor future. After `close` also all those
    that `close` gave up."""
    omitted: int = 0
    """Further failures of that kind, of which only the number was kept."""

    @property
    def undelivered(self) -> int:
        return self.outstanding + len(self.failures) + self.omitted
