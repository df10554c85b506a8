"""What a decision of a coordinator gives: records to append, and answers that leave once these are committed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

R = TypeVar("R")

#: Whatever stands for one waiting request; only whoever made it looks inside (broker.coordinator.runtime).
Ticket = Any
#: A plain value without wire versions, which the handler of the request turns into a response.
Answer = Any


@dataclass(slots=True)
class Outcome(Generic[R]):
    """`records` are appended as one batch (removals perhaps as several) and replayed at once; `answers` leave when they
    are committed."""

    records: list[R] = field(default_factory=list)
    answers: list[tuple[Ticket, Answer]] = field(default_factory=list)

    def add(self, other: Outcome[R]) -> None:
        """What was decided after this, to be carried out together with it."""
        self.records += other.records
        self.answers += other.answers


#: A key of a shard, and what was decided about it at the moment the step was taken; empty where there is nothing to do.
Step = tuple[str, Outcome[R]]
