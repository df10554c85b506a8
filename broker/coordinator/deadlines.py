"""Deadlines that are mostly put off before they come: a heartbeat changes a dict entry and leaves the heap alone."""

from __future__ import annotations

import heapq
from typing import Generic, TypeVar

K = TypeVar("K")

#: So many entries of the heap may be of keys that were dropped, and as many again as there are keys.
MAX_DROPPED = 1000


class Deadlines(Generic[K]):
    """The deadline of each key, in seconds of the loop's clock.

    Invariant: the heap holds, for every key, an entry that is not later than the key's deadline.
    """

    def __init__(self) -> None:
        self._deadlines: dict[K, float] = {}
        #: (time, number of the entry, key). Entries of keys that were put off or dropped are skipped.
        self._heap: list[tuple[float, int, K]] = []
        #: The earliest entry of each key in the heap.
        self._entries: dict[K, float] = {}
        self._count = 0

    def __len__(self) -> int:
        return len(self._deadlines)

    def __contains__(self, key: K) -> bool:
        return key in self._deadlines

    def set(self, key: K, deadline: float | None) -> None:
        """None: the key has no deadline any more."""
        if deadline is None:
            self._deadlines.pop(key, None)
            if len(self._heap) > 2 * len(self._deadlines) + MAX_DROPPED:
                self._drop_entries()
            return
        self._deadlines[key] = deadline
        entry = self._entries.get(key)
        if entry is None or deadline < entry:
            self._push(key, deadline)

    def _drop_entries(self) -> None:
        """Drop the entries of keys without a deadline. Members can come and go thousands of times before an entry would
        be due, which is after half an hour if they say so."""
        self._heap = [
            entry
            for entry in self._heap
            if entry[2] in self._deadlines and self._entries.get(entry[2]) == entry[0]
        ]
        heapq.heapify(self._heap)
        self._entries = {key: time for time, _, key in self._heap}

    def _push(self, key: K, deadline: float) -> None:
        self._count += 1
        self._entries[key] = deadline
        heapq.heappush(self._heap, (deadline, self._count, key))

    def next(self) -> float | None:
        """A time that is not later than the earliest deadline. It may be earlier, if that deadline was put off."""
        while self._heap:
            time, _, key = self._heap[0]
            if key in self._deadlines and self._entries.get(key) == time:
                return time
            heapq.heappop(self._heap)
            if self._entries.get(key) == time:
                del self._entries[key]
        return None

    def take_due(self, now: float, limit: int | None = None) -> list[K]:
        """Take out at most `limit` of the keys whose deadline has come, earliest first. The others are still due."""
        due: list[K] = []
        while self._heap and self._heap[0][0] <= now and len(due) != limit:
            time, _, key = heapq.heappop(self._heap)
            if self._entries.get(key) != time:
                continue
            del self._entries[key]
            deadline = self._deadlines.get(key)
            if deadline is None:
                continue
            if deadline <= now:
                del self._deadlines[key]
                due.append(key)
            else:
                self._push(key, deadline)
        return due
