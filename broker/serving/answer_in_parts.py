"""An answer to a request that names many things: each is asked for and answered by itself, at its own time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Generic, TypeVar

A = TypeVar("A")

#: Parts that are asked for in one loop iteration. A request can name a hundred thousand groups, and asking for all of
#: them at once would keep other clients waiting for seconds.
PARTS_AT_A_TIME = 1000


class AnswerInParts(Generic[A]):
    """Collects the parts of one answer. For each position `ask(position, reply)` is called, and has to call
    `reply(part)`, now or later. When all parts are there, `done` gets them in order. Without parts it is called at
    once."""

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
        #: Parts that were asked for and are not answered yet.
        self._missing = 0
        if count == 0:
            done([])
        else:
            self._ask_next_parts(0)

    def _ask_next_parts(self, first: int) -> None:
        end = min(first + PARTS_AT_A_TIME, len(self._parts))
        self._missing = end - first
        for position in range(first, end):
            self._ask(position, partial(self._part_answered, position, end))

    def _part_answered(self, position: int, end: int, part: A) -> None:
        self._parts[position] = part
        self._missing -= 1
        if self._missing:
            return
        if end == len(self._parts):
            self._done(self._parts)
        else:
            self._loop.call_soon(self._ask_next_parts, end)
