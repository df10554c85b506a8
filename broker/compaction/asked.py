"""Passes that somebody asked for: they are due whatever the dirty ratio, the interval and a back-off say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from protocol.errors import KafkaError

#: An asked pass begins when what was there is committed and recorded on this node, or after this time without that.
PATIENCE_S = 5.0


class PassResult(NamedTuple):
    bytes_before: int
    bytes_after: int
    cleaned_end: int
    elapsed_s: float
    limit: str
    """Why the pass did not go further."""


#: Called once.
Answer = Callable[[PassResult | KafkaError], None]


@dataclass
class AskedPass:
    end_offset: int
    """Of the log, when it was asked for."""
    begins_by: float
    answers: list[Answer] = field(default_factory=list)

    def answer(self, result: PassResult | KafkaError) -> None:
        for answer in self.answers:
            answer(result)
