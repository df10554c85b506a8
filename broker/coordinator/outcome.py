"""What a decision of a coordinator gives: records to append, and answers that leave once these are committed."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any, Generic, TypeAlias, TypeVar

from broker.coordinator.ticket import Ticket

A = TypeVar("A")
R = TypeVar("R")

#: A decision about no more things than these is made and carried out at once.
FEW = 50


@dataclass(slots=True)
class Outcome(Generic[R]):
    """`records` are appended as one batch (tombstones perhaps as several) and replayed at once. `answers` leave when
    the records are committed."""

    records: list[R] = field(default_factory=list)
    producer: tuple[int, int] | None = None
    """(producer id, epoch) of a transaction in which the records are written: they are pending until it ends. They are
    one batch, no tombstones, and the shard has changed nothing yet: the batch may be refused, as that of a fenced
    producer is, and then the answers are refusals."""
    check_append: Callable[[], None] | None = None
    """With `producer`: called before the records are appended. Raises KafkaError if the transaction has ended."""
    answers: list[tuple[Ticket[Any], Any]] = field(default_factory=list)
    """Invariant: each answer is of the type that its ticket takes. `add_answer` holds it."""

    def add_answer(self, ticket: Ticket[A], answer: A) -> Outcome[R]:
        """`answer` is a value without wire versions; the handler of the request makes a response of it. Returns this
        outcome."""
        self.answers.append((ticket, answer))
        return self


#: What was decided; or the steps of a decision that may take long. No other decision about the key is made meanwhile.
Decided: TypeAlias = Outcome[R] | Generator[Any, None, Outcome[R]]
