"""What a producer has counted."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

from pipeline.producer.classification import ErrorClass, ErrorRule


@dataclass(slots=True)
class Counters:
    """Numbers since the producer was made. `ReliableProducer.counters()` gives a copy."""

    delivered: int = 0
    """Records acknowledged, at whichever attempt."""
    failed: int = 0
    """Records that were not delivered, dead letters among them."""
    retries: int = 0
    """Attempts that this package made after a first one failed. librdkafka's own retries are not seen here."""
    dead_letters: int = 0
    """Failed records of which a copy is on the dead-letter topic."""
    dead_letters_failed: int = 0
    errors_by_class: Counter[ErrorClass] = field(default_factory=Counter)
    """Attempts that failed."""
    errors_by_code: Counter[str] = field(default_factory=Counter)
    client_events: Counter[str] = field(default_factory=Counter)
    """What librdkafka told of connections and of itself, by the name of the code. No record belongs to these."""
    queue_full_waits: int = 0
    """Calls of `send` that found the queue full."""
    breaker_openings: int = 0
    throttled_by_broker_ms: int = 0
    """How long brokers held answers back because of a quota (KIP-219), summed up."""

    def attempt_failed(self, rule: ErrorRule) -> None:
        self.errors_by_class[rule.error_class] += 1
        self.errors_by_code[rule.name] += 1

    def copy(self) -> Counters:
        return replace(
            self,
            errors_by_class=self.errors_by_class.copy(),
            errors_by_code=self.errors_by_code.copy(),
            client_events=self.client_events.copy(),
        )
