"""What ran, when and on which node: a digest to compare two runs, and the last events for a report."""

from __future__ import annotations

import asyncio
import functools
import hashlib
from collections import deque
from collections.abc import Callable
from typing import Any

#: Lines kept for the report of a failure (style.md section 3.2, rule 7).
RECENT_EVENTS = 200

#: Lines hashed at once: the hash then costs little beside the line itself.
_HASHED_TOGETHER = 1024


def label(callback: Callable[..., Any]) -> str:
    """The name of a callback that is the same in every run: never an address, never a task number."""
    owner = getattr(callback, "__self__", None)
    if isinstance(owner, asyncio.Task):
        return str(getattr(owner.get_coro(), "__qualname__", "task"))
    while isinstance(callback, functools.partial):
        callback = callback.func
    name = getattr(callback, "__qualname__", None)
    return name if name is not None else type(callback).__qualname__


class Trace:
    """A running hash over (time, node, callback)."""

    def __init__(self) -> None:
        self.events = 0
        #: The facts, all of them: (time, node, text).
        self.notes: list[tuple[float, str, str]] = []
        self._hash = hashlib.blake2b(digest_size=16)
        self._pending: list[str] = []
        self._recent: deque[tuple[float, str, str]] = deque(maxlen=RECENT_EVENTS)

    def add(self, now_s: float, node: str, callback: Callable[..., Any]) -> None:
        name = label(callback)
        self.events += 1
        self._recent.append((now_s, node, name))
        self._pending.append(f"{now_s!r} {node} {name}\n")
        if len(self._pending) >= _HASHED_TOGETHER:
            self._drain()

    def note(self, now_s: float, node: str, text: str) -> None:
        """A fact of the world (a crash, a cut) or of a workload; it counts for the digest."""
        fact = (now_s, node, text)
        self.notes.append(fact)
        self._recent.append(fact)
        self._pending.append(f"{now_s!r} {node} {text}\n")

    def digest(self) -> str:
        self._drain()
        return self._hash.hexdigest()

    def recent(self) -> list[str]:
        return [f"{now_s:14.6f} {node:<12} {name}" for now_s, node, name in self._recent]

    def _drain(self) -> None:
        self._hash.update("".join(self._pending).encode())
        self._pending.clear()
