"""Ctrl-C, SIGTERM and the end of the terminal, for a command that must not leave processes behind."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """Each of these signals raises KeyboardInterrupt in the main thread; within `held()`, at its end."""

    def __init__(self) -> None:
        self._is_held = False
        self._is_pending = False

    @contextmanager
    def heard(self) -> Iterator[None]:
        previous = {number: signal.signal(number, self._arrived) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)

    def _arrived(self, _: int, __: FrameType | None) -> None:
        if self._is_held:
            self._is_pending = True
        else:
            raise KeyboardInterrupt

    @contextmanager
    def held(self) -> Iterator[None]:
        self._is_held = True
        try:
            yield
        finally:
            self._is_held = False
        if self._is_pending:
            self._is_pending = False
            raise KeyboardInterrupt
