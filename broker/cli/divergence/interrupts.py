"""Ctrl-C, SIGTERM and the end of the terminal, for a command that must not leave processes behind."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """The first of these signals raises KeyboardInterrupt in the main thread; within `held()`, at its end.

    Those that follow do nothing: whatever tidies up must come to its end.
    """

    def __init__(self) -> None:
        self._is_held = False
        self._has_arrived = False
        self._is_raised = False

    @contextmanager
    def heard(self) -> Iterator[None]:
        previous = {number: signal.signal(number, self._arrived) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)

    @contextmanager
    def held(self) -> Iterator[None]:
        self._is_held = True
        try:
            yield
        finally:
            self._is_held = False
        self._raise_first()

    def _arrived(self, _: int, __: FrameType | None) -> None:
        self._has_arrived = True
        if not self._is_held:
            self._raise_first()

    def _raise_first(self) -> None:
        if self._has_arrived and not self._is_raised:
            self._is_raised = True
            raise KeyboardInterrupt
