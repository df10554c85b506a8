"""One answer for a request whose parts are asked for and answered one by one, each in its own time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Generic, TypeVar

A = TypeVar("A")

#: Parts that are under way at a time. A request can name a hundred thousand groups, and what is done for all of them in
#: one turn of the loop would keep everybody else waiting for seconds.
PARTS_AT_A_TIME = 1000


class Gathered(Generic[A]):
    """`done` gets the parts, in order, when the last of them is there; at once where there are none. `ask` is given
    each position, and what takes the part that belongs there."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        count: int,
        ask: Callable[[int, Callable[[A], None]], None],
        done: Callable[[list[A]], None],
    ) -> None:
        self._loop = loop
        self._parts: list[Any] = [None] * count
        self._ask = ask
        self._done = done
        #: Of those that are under way.
        self._missing = 0
        if count == 0:
            done([])
        else:
            self._ask_some(0)

    def _ask_some(self, first: int) -> None:
        end = min(first + PARTS_AT_A_TIME, len(self._parts))
        self._missing = end - first
        for position in range(first, end):
            self._ask(position, partial(self._take, position, end))

    def _take(self, position: int, end: int, part: A) -> None:
        self._parts[position] = part
        self._missing -= 1
        if self._missing:
            return
        if end == len(self._parts):
            self._done(self._parts)
        else:
            self._loop.call_soon(self._ask_some, end)
