"""How long something took, counted in classes of time: cheap enough for what happens thousands of times a second."""

from __future__ import annotations

#: Class k counts what took less than 2^k microseconds, and no less than half of that.
CLASSES = 64


class Durations:
    """Plain numbers that one owner adds to. Somebody else may read them at any time. They only rise."""

    __slots__ = ("counts", "total_us")

    def __init__(self) -> None:
        #: By class.
        self.counts = [0] * CLASSES
        self.total_us = 0

    def add(self, seconds: float) -> None:
        """Count one that took so long, by a clock that never goes back."""
        elapsed_us = int(seconds * 1e6)
        self.counts[elapsed_us.bit_length()] += 1
        self.total_us += elapsed_us
