"""A line that tells how far a command has come. It is for a person: on standard error, and only on a terminal."""

from __future__ import annotations

import sys
from types import TracebackType

#: A command that is done sooner shows nothing.
FIRST_S = 1.0
INTERVAL_S = 0.2


class Progress:
    """`12,000 records acknowledged`, written over again. Within `with`, so that the line is gone at the end."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._is_shown = False
        self._next_s: float | None = None
        self._is_terminal = sys.stderr.isatty()

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_shown:
            self._write("")

    def show(self, done: int, now_s: float, total: int | None = None) -> None:
        """`now_s`: of a monotonic clock."""
        if not self._is_terminal:
            return
        if self._next_s is None:
            self._next_s = now_s + FIRST_S
        if now_s >= self._next_s:
            self._next_s = now_s + INTERVAL_S
            self._write(f"{done:,}{'' if total is None else f' of {total:,}'} {self._what}")

    def _write(self, text: str) -> None:
        # Back to the first column, and away with what stood there (ECMA-48: EL).
        sys.stderr.write(f"\r\x1b[K{text}")
        sys.stderr.flush()
        self._is_shown = bool(text)
