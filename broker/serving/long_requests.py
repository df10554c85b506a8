"""Requests that would keep the event loop busy for long are served in pieces.

A small request can ask for seconds of work: 740 KB of zstd can be a million records, and a compacted topic has to
check each of them; a megabyte can name twenty thousand topics. Between the pieces other clients, peers and heartbeats
are served. Otherwise the node would miss its heartbeats and lose its leaderships, and the client would send the same
request to the next leader.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from broker.scheduling.background import PAUSE_S, Progress, Steps, run_piece
from broker.scheduling.budget import LoopBudget
from protocol.errors import ProtocolError

if TYPE_CHECKING:
    from broker.network.request import Request

#: Long requests that are served at a time, in turns. Each may hold a decoded message and its answer, or a decompressed
#: batch (protocol.records.compression bounds its size). Further ones wait until one of these is done.
MAX_CONCURRENT = 4
#: Time for their pieces in one loop iteration.
PIECES_S = 0.001


class LongRequests:
    """The long requests of one node."""

    def __init__(self, loop: asyncio.AbstractEventLoop, now: Callable[[], float]) -> None:
        """`now`: as `LoopBudget`."""
        self._loop = loop
        #: Of their pieces. Requests that are served at once have another one, so that many of them do not keep the long
        #: ones waiting for ever.
        self._budget = LoopBudget(loop, now, PIECES_S)
        #: Requests that are being served. Invariant: MAX_CONCURRENT at most, and as many while any wait.
        self._running = 0
        self._waiting: deque[tuple[Request, Steps]] = deque()

    @property
    def count(self) -> int:
        """Requests that are not done."""
        return self._running + len(self._waiting)

    def serve(self, request: Request, steps: Steps) -> None:
        """Serve a request that has just come by running all of `steps`.

        If they take less than a piece, the request is done when this returns. Otherwise no other request of this client
        is served until it is done, so that the client's requests keep their order. If the client disconnects, the
        remaining steps are not run. Between two steps other requests are served, which may change or close a replica.
        Raises ProtocolError as the steps do.
        """
        progress = run_piece(steps, self._budget.now)
        if progress is not Progress.DONE:
            self._hold(request, steps)

    def resume(self, request: Request, steps: Steps) -> None:
        """Go on with a request that has waited for something, by running all of `steps`. As `serve`, but many requests
        may have waited for the same thing. So this begins at once only if there is time in this loop iteration."""
        if request.is_abandoned:
            return
        try:
            if self._budget.is_spent() or run_piece(steps, self._budget.now) is not Progress.DONE:
                self._hold(request, steps)
        except ProtocolError as error:
            request.connection.refuse(error)

    def _hold(self, request: Request, steps: Steps) -> None:
        request.connection.hold_requests()
        if self._running < MAX_CONCURRENT:
            self._running += 1
            self._budget.wait(partial(self._continue, request, steps))
        else:
            self._waiting.append((request, steps))

    def _continue(self, request: Request, steps: Steps) -> None:
        progress = self._run_piece(request, steps)
        if progress is Progress.MORE:
            self._budget.wait(partial(self._continue, request, steps))
        elif progress is Progress.PAUSED:
            self._loop.call_later(PAUSE_S, self._continue, request, steps)
        elif self._waiting:
            self._budget.wait(partial(self._continue, *self._waiting.popleft()))
        else:
            self._running -= 1

    def _run_piece(self, request: Request, steps: Steps) -> Progress:
        """Run a piece of a request. It is done, too, if its client is gone."""
        connection = request.connection
        connection.abort_if_gone()
        if request.is_abandoned:
            return Progress.DONE
        try:
            progress = run_piece(steps, self._budget.now)
        except ProtocolError as error:
            connection.refuse(error)
            return Progress.DONE
        if progress is Progress.DONE:
            connection.release_requests()
        return progress
