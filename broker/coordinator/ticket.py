"""One waiting request: how it is answered, and what its answer is where there is no coordinator to give one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from protocol.errors import ErrorCode

A = TypeVar("A")


class Ticket(Generic[A]):
    """One request that waits for its answer. Machines hold it and look at nothing in it."""

    __slots__ = ("_failure", "_reply", "is_open")

    def __init__(self, reply: Callable[[A], None], failure: Callable[[ErrorCode], A]) -> None:
        self._reply = reply
        self._failure = failure
        self.is_open = True

    def answer(self, answer: A) -> None:
        """Once; what comes later has lost a race with the end of the leadership."""
        if self.is_open:
            self.is_open = False
            self._reply(answer)

    def fail(self, error: ErrorCode) -> None:
        if self.is_open:
            self.answer(self._failure(error))

    def refusal(self, error: ErrorCode) -> A:
        return self._failure(error)
