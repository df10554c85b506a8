"""One line per cause and minute, and a count of the others.

What others cause (a client with its requests, a full disk with each write) can happen ten thousand times a second. Such
a line names its cause:

    log.warning("connection closed: bad request", peer=..., reason=..., cause=host)

The first one of an event and a cause is written. The next ones within EACH_S are counted, and told in one line when the
time is over. Lines without a cause are always written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, MutableMapping
from dataclasses import dataclass
from typing import Any

import structlog

EACH_S = 60.0
#: Who has many addresses has as many causes. With more than these, an event's further causes are counted as one.
MAX_CAUSES = 200
_OTHERS = object()
_NUMBERS = re.compile(r"\d+")

log = structlog.get_logger()


@dataclass(slots=True)
class Repeated:
    """What was not written of one cause. Invariant: count is 0 exactly while there is nothing to tell."""

    event: str
    level: str
    until_s: float
    """Until then no further line of this cause is written."""
    count: int
    details: MutableMapping[str, Any]
    """Of the last one."""


def kind_of(reason: str) -> str:
    """A reason without its numbers: what makes it another cause than other reasons."""
    return _NUMBERS.sub("#", reason)


class LineLimit:
    """Decides which lines are written. A value: `now` is any clock of seconds that does not go back."""

    def __init__(self) -> None:
        self._known: dict[Hashable, Repeated] = {}

    def admit(
        self, event: str, level: str, cause: Hashable, details: MutableMapping[str, Any], now: float
    ) -> bool:
        """Whether this line is to be written. A line that stands for several says so with `count` among its details."""
        key = (event, cause)
        known = self._known.get(key)
        if known is None and len(self._known) >= MAX_CAUSES:
            key = (event, _OTHERS)
            known = self._known.get(key)
        if known is None:
            self._known[key] = Repeated(event, level, now + EACH_S, 0, {})
            return True
        known.count += details.get("count", 1)
        known.details = details
        return False

    def take_due(self, now: float) -> list[Repeated]:
        """The counts that are to be told now. A cause that goes on has one line per EACH_S, one that does not is
        forgotten."""
        due: list[Repeated] = []
        for key, known in list(self._known.items()):
            if now < known.until_s:
                continue
            del self._known[key]
            if known.count:
                due.append(known)
                self._known[key] = Repeated(known.event, known.level, now + EACH_S, 0, {})
        return due


class LimitedLines:
    """A processor of structlog, the first one."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._limit = LineLimit()
        self._now = now

    def __call__(
        self, logger: object, level: str, line: MutableMapping[str, Any]
    ) -> MutableMapping[str, Any]:
        cause = line.pop("cause", None)
        if cause is None:
            return line
        event = line.pop("event")
        if not self._limit.admit(event, level, cause, line, self._now()):
            raise structlog.DropEvent
        line["event"] = event
        return line

    def write_due(self, *, is_end: bool = False) -> None:
        """Called every second or so, and once at the end of the process."""
        for repeated in self._limit.take_due(float("inf") if is_end else self._now()):
            details = {**repeated.details, "count": repeated.count}
            getattr(log, repeated.level)(f"{repeated.event} (again)", **details)
