"""What ran, when and on which node: a digest to compare two runs, and the last events for a report."""

from __future__ import annotations

import asyncio
import functools
import hashlib
from array import array
from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Any

#: Lines kept for the report of a failure (style.md section 3.2, rule 7).
RECENT_EVENTS = 200

#: Events hashed at once: the hash then costs little beside the keeping.
_HASHED_TOGETHER = 1024


def label(callback: Callable[..., Any]) -> str:
    """The name of a callback that is the same in every run: never an address, never a task number."""
    # Most are methods and functions of Python; the long way gives the same answer for them.
    kind = type(callback)
    if kind is MethodType or kind is FunctionType:
        return callback.__qualname__
    owner = getattr(callback, "__self__", None)
    if isinstance(owner, asyncio.Task):
        return str(getattr(owner.get_coro(), "__qualname__", "task"))
    while isinstance(callback, functools.partial):
        callback = callback.func
    name = getattr(callback, "__qualname__", None)
    return name if name is not None else type(callback).__qualname__


class Trace:
    """A running hash over (time, node, callback).

    Called for every callback of every run, so an event is appended to three columns and nothing else; the columns
    are hashed when they are long enough.
    """

    def __init__(self) -> None:
        self.events = 0
        #: The facts, all of them: (time, node, text).
        self.notes: list[tuple[float, str, str]] = []
        self._hash = hashlib.blake2b(digest_size=16)
        #: What is not hashed yet, by column.
        self._times_s = array("d")
        self._nodes: list[str] = []
        self._names: list[str] = []
        #: The end of what is hashed.
        self._before: list[tuple[float, str, str]] = []

    def add(self, now_s: float, node: str, callback: Callable[..., Any]) -> None:
        self.events += 1
        self._times_s.append(now_s)
        self._nodes.append(node)
        self._names.append(label(callback))
        if len(self._names) >= _HASHED_TOGETHER:
            self._drain()

    def note(self, now_s: float, node: str, text: str) -> None:
        """A fact of the world (a crash, a cut) or of a workload; it counts for the digest."""
        self.notes.append((now_s, node, text))
        self._times_s.append(now_s)
        self._nodes.append(node)
        self._names.append(text)

    def digest(self) -> str:
        """Of everything up to now; to ask changes nothing."""
        found = self._hash.copy()
        found.update(self._waiting())
        return found.hexdigest()

    def recent(self) -> list[str]:
        return [f"{now_s:14.6f} {node:<12} {name}" for now_s, node, name in self._last()]

    def _last(self) -> list[tuple[float, str, str]]:
        waiting = zip(self._times_s, self._nodes, self._names, strict=True)
        return [*self._before, *waiting][-RECENT_EVENTS:]

    def _drain(self) -> None:
        self._hash.update(self._waiting())
        self._before = self._last()
        del self._times_s[:]
        self._nodes.clear()
        self._names.clear()

    def _waiting(self) -> bytes:
        """What is not hashed yet. The count keeps the columns apart."""
        texts = "\0".join([str(len(self._names)), *self._nodes, *self._names])
        return self._times_s.tobytes() + texts.encode()
