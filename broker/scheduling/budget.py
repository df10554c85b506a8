"""How long the requests of clients may keep the loop in one iteration.

A loop iteration serves all sockets that have something to read. Each request may take little, and all of them together
would still keep heartbeats, peers and flushes waiting. So requests are served only until the budget of the iteration is
spent. Those that are left are served in the next iterations, in the order in which they came.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

#: Time for requests in one loop iteration. The last of them may begin just before it is spent. Requests that are served
#: in steps have as much again (broker.serving.long_requests). A node must answer its peers within some tens of
#: milliseconds at all times, also on a machine that is half as fast.
REQUESTS_S = 0.005


class LoopBudget:
    """The budget of one node. `now`: seconds, with a resolution of a microsecond or finer."""

    def __init__(self, loop: asyncio.AbstractEventLoop, now: Callable[[], float]) -> None:
        self._loop = loop
        self.now = now
        #: When the budget of the present iteration is spent (`now`); 0: nothing was served in it yet.
        self._spent_at_s = 0.0
        #: What could not be served, oldest first. Invariant: not empty only while `_next_iteration` is scheduled.
        self._waiting: deque[Callable[[], None]] = deque()

    def is_spent(self) -> bool:
        """Whether nothing more may be served in this iteration. Asked before each request."""
        if not self._spent_at_s:
            self._begin()
            return False
        return self.now() >= self._spent_at_s

    def wait(self, serve: Callable[[], None]) -> None:
        """Call `serve` in a later iteration, when those that wait already were called. It asks `is_spent` again."""
        if not self._spent_at_s:
            self._begin()
        self._waiting.append(serve)

    def _begin(self) -> None:
        self._spent_at_s = self.now() + REQUESTS_S
        self._loop.call_soon(self._next_iteration)

    def _next_iteration(self) -> None:
        self._spent_at_s = 0.0
        waiting, self._waiting = self._waiting, deque()
        while waiting and not self.is_spent():
            waiting.popleft()()
        waiting.extend(self._waiting)
        self._waiting = waiting
