"""How long the event loop was kept busy at a time: by how much a timer fires too late.

A node that serves nobody for longer than an election timeout loses its leaderships, so this is the first number to look
at where they change without a reason. The timer is one that the node has anyway. It sees each stall longer than its
interval, and of shorter ones a part: what is missed is at most an interval long.
"""

from __future__ import annotations

from broker.scheduling.ticks import SLOW_TICK_S, Ticks
from storage.durations import Durations

#: `longest_s` is of the last one to two of these.
WINDOW_S = 60.0


class LoopWatch:
    """Of one node."""

    def __init__(self, now: float, ticks: Ticks) -> None:
        """`now`: loop time in seconds, as ticks have it."""
        #: By how much each tick was late.
        self.durations = Durations()
        self._expected_at_s = now + SLOW_TICK_S
        self._window_ends_s = now + WINDOW_S
        self._longest_s = 0.0
        self._longest_before_s = 0.0
        ticks.every(SLOW_TICK_S, self.tick)

    @property
    def longest_s(self) -> float:
        """The longest of the last minute, or of up to two."""
        return max(self._longest_s, self._longest_before_s)

    def tick(self, now: float) -> None:
        late_s = max(0.0, now - self._expected_at_s)
        self._expected_at_s = now + SLOW_TICK_S
        self.durations.add(late_s)
        if now >= self._window_ends_s:
            self._window_ends_s = now + WINDOW_S
            self._longest_before_s, self._longest_s = self._longest_s, 0.0
        self._longest_s = max(self._longest_s, late_s)
