"""One timer heap for all groups of a node: an idle group costs nothing (architecture.md section 5)."""

from __future__ import annotations

import asyncio
import heapq
from typing import Protocol


class Timed(Protocol):
    timer_at: float | None

    def timer_fired(self) -> None: ...


class TimerHeap:
    """Deadlines in loop time. A changed deadline leaves its old entry in the heap, which is skipped later."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._heap: list[tuple[float, int, Timed]] = []
        self._sequence = 0
        self._handle: asyncio.TimerHandle | None = None
        #: Loop time at which `_handle` fires. (uvloop's handle does not know it if it is in the past.)
        self._armed_at = 0.0

    def set(self, timed: Timed, deadline: float | None) -> None:
        timed.timer_at = deadline
        if deadline is None:
            return
        self._sequence += 1
        heapq.heappush(self._heap, (deadline, self._sequence, timed))
        if self._handle is None or deadline < self._armed_at:
            self._arm()

    def close(self) -> None:
        self._heap.clear()
        if self._handle is not None:
            self._handle.cancel()

    def _arm(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        while self._heap and self._heap[0][2].timer_at != self._heap[0][0]:
            heapq.heappop(self._heap)
        if self._heap:
            self._armed_at = self._heap[0][0]
            self._handle = self._loop.call_at(self._armed_at, self._fire)

    def _fire(self) -> None:
        self._handle = None
        now = self._loop.time()
        while self._heap and self._heap[0][0] <= now:
            deadline, _, timed = heapq.heappop(self._heap)
            if timed.timer_at == deadline:
                timed.timer_at = None
                timed.timer_fired()
        self._arm()
