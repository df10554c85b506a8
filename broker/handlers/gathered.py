"""One answer for a request whose parts are answered one by one, each in its own time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Generic, TypeVar

A = TypeVar("A")


class Gathered(Generic[A]):
    """`done` gets the parts, in order, when the last of them is there; at once where there are none."""

    def __init__(self, count: int, done: Callable[[list[A]], None]) -> None:
        self._parts: list[Any] = [None] * count
        self._missing = count
        self._done = done
        if count == 0:
            done([])

    def part(self, position: int) -> Callable[[A], None]:
        """Takes the part at this position, once."""
        return partial(self._take, position)

    def _take(self, position: int, part: A) -> None:
        self._parts[position] = part
        self._missing -= 1
        if self._missing == 0:
            self._done(self._parts)
