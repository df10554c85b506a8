"""Lines of the log that clients can cause as often as they like."""

from __future__ import annotations

from collections import Counter

import structlog

log = structlog.get_logger()

LINES_PER_TICK = 100
TICK_S = 1.0


class LimitedLog:
    """Writes so many lines in each second. Of the others it says in one line how many they were. Thousands of
    connections in a second, each with a line of its own, would fill the disk."""

    def __init__(self) -> None:
        self._lines = 0
        self._unwritten: Counter[str] = Counter()

    def warning(self, event: str, **details: object) -> None:
        self._lines += 1
        if self._lines <= LINES_PER_TICK:
            log.warning(event, **details)
        else:
            self._unwritten[event] += 1

    def tick(self, now: float) -> None:
        """Called every TICK_S."""
        self._lines = 0
        unwritten, self._unwritten = self._unwritten, Counter()
        for event, count in unwritten.items():
            log.warning(f"{event} (further ones)", count=count)
