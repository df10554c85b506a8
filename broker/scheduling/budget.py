"""How long work of one kind may keep the loop in one iteration.

A loop iteration serves all sockets that have something to read. Each request may take little, and all of them together
would still keep heartbeats, peers and flushes waiting. So work is done only until the budget of its kind is spent in
this iteration. What is left is done in the next iterations, in the order in which it came.

Each kind has a budget of its own, so that none keeps another waiting: requests that are served at once, pieces of long
requests (broker.serving.long_requests), and the rest, decisions of the controller among it
(broker.scheduling.background). Sends to clients have a limit, too (broker.scheduling.turn). A node must answer its
peers within some tens of milliseconds at all times, also on a machine that is half as fast.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

#: Time for requests in one loop iteration. The last of them may begin just before it is spent.
REQUESTS_S = 0.002


class LoopBudget:
    """One budget of one node. `now`: seconds, with a resolution of a microsecond or finer."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        now: Callable[[], float],
        limit_s: float = REQUESTS_S,
        *,
        is_told: bool = False,
    ) -> None:
        """`is_told`: somebody calls `iteration_begins` (`Turn`, which runs after almost every request anyway).
        Otherwise the budget has itself called in the iteration after each one in which it was used."""
        self._loop = loop
        self.now = now
        self._limit_s = limit_s
        self._is_told = is_told
        #: When the budget of the present iteration is spent (`now`); 0: nothing was done in it yet. Where nobody has
        #: told that an iteration begins it may be of an earlier one: then work waits for an iteration without need.
        self._spent_at_s = 0.0
        self._is_scheduled = False
        #: What could not be done, oldest first. Invariant: not empty only while `_next_iteration` is scheduled or runs.
        self._waiting: deque[Callable[[], None]] = deque()
        #: What came while `_next_iteration` runs, behind all of those.
        self._added: deque[Callable[[], None]] = deque()

    def is_spent(self) -> bool:
        """Whether nothing more may be done in this iteration. Asked before each piece of work."""
        if not self._spent_at_s:
            self._spent_at_s = self.now() + self._limit_s
            if not self._is_told:
                self._schedule()
            return False
        return self.now() >= self._spent_at_s

    def iteration_begins(self) -> None:
        if not self._is_scheduled:
            self._spent_at_s = 0.0

    @property
    def is_wanted(self) -> bool:
        """Other work waits for a later iteration, or for its turn in this one."""
        return bool(self._waiting or self._added)

    def wait(self, work: Callable[[], None]) -> None:
        """Call `work` in a later iteration, when what waits already was called."""
        self._added.append(work)
        self._schedule()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._next_iteration)

    def _next_iteration(self) -> None:
        self._is_scheduled = False
        self._spent_at_s = 0.0
        self._waiting += self._added
        self._added.clear()
        while self._waiting and not self.is_spent():
            self._waiting.popleft()()
        if self._waiting:
            self._schedule()
