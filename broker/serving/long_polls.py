"""Fetches without a session that wait for records: how much they may keep in memory together."""

from __future__ import annotations

from typing import Protocol


class LongPoll(Protocol):
    def end_early(self) -> None:
        """Answer now, although there is nothing new. Calls `LongPolls.remove`."""


class LongPolls:
    """Of one node. A fetch keeps every partition that it names while it waits, and a client says how long that is.
    With a session they are kept anyway (`FetchSessions`).

    Invariant: `_partitions` is the sum of `_open`, and at most `max_partitions`.
    """

    def __init__(self, max_partitions: int) -> None:
        self._max_partitions = max_partitions
        #: Fetch -> how many partitions it names, in the order in which they came.
        self._open: dict[LongPoll, int] = {}
        self._partitions = 0

    def add(self, poll: LongPoll, partitions: int) -> None:
        """A fetch begins to wait. If all together name too many partitions, those that name the most are answered
        early, of equal ones the oldest. That may be this one."""
        self._open[poll] = partitions
        self._partitions += partitions
        while self._partitions > self._max_partitions:
            max(self._open, key=self._open.__getitem__).end_early()

    def remove(self, poll: LongPoll) -> None:
        """It waits no more. It need not be here."""
        self._partitions -= self._open.pop(poll, 0)
