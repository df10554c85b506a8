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
from typing import TYPE_CHECKING

from broker.scheduling.budget import REQUESTS_S
from broker.serving.steps import Steps
from protocol.errors import ProtocolError

if TYPE_CHECKING:
    from broker.network.request import Request

#: Long requests that are served at a time, in turns. Each may hold a decoded message and its answer, or a decompressed
#: batch (protocol.records.compression bounds its size). Further ones wait until one of these is done.
MAX_CONCURRENT = 4
#: How long a request is served at a time, while others wait.
PIECE_S = 0.001


class LongRequests:
    """The long requests of one node. `now`: seconds, with a resolution of a microsecond or finer."""

    def __init__(self, loop: asyncio.AbstractEventLoop, now: Callable[[], float]) -> None:
        self._loop = loop
        self._now = now
        self._running: deque[tuple[Request, Steps]] = deque()
        self._waiting: deque[tuple[Request, Steps]] = deque()
        self._is_scheduled = False

    def serve(self, request: Request, steps: Steps) -> None:
        """Serve a request by running all of `steps`.

        If they take less than PIECE_S, the request is done when this returns. Otherwise no other request of this client
        is served until it is done, so that the client's requests keep their order. If the client disconnects, the
        remaining steps are not run. Between two steps other requests are served, which may change or close a replica.
        Raises ProtocolError as the steps do.
        """
        if self._run_piece(steps):
            return
        request.connection.hold_requests()
        self._waiting.append((request, steps))
        self._schedule()

    def _run_piece(self, steps: Steps) -> bool:
        """Run steps until PIECE_S have passed. True: there are no more steps."""
        ends_s = 0.0
        for _ in steps:
            now_s = self._now()
            if not ends_s:  # the first step is not measured: most requests have no more
                ends_s = now_s + PIECE_S
            elif now_s >= ends_s:
                return False
        return True

    def _schedule(self) -> None:
        if not self._is_scheduled and (self._running or self._waiting):
            self._is_scheduled = True
            self._loop.call_soon(self._run_pieces)

    def _run_pieces(self) -> None:
        """Run pieces, of each request in turn, until the time for one loop iteration is over."""
        self._is_scheduled = False
        ends_s = self._now() + REQUESTS_S
        while self._running or self._waiting:
            while self._waiting and len(self._running) < MAX_CONCURRENT:
                self._running.append(self._waiting.popleft())
            request, steps = self._running.popleft()
            if not self._is_done(request, steps):
                self._running.append((request, steps))
            if self._now() >= ends_s:
                break
        self._schedule()

    def _is_done(self, request: Request, steps: Steps) -> bool:
        """Run a piece of a request. True: it has no more steps, or its client is gone."""
        connection = request.connection
        connection.abort_if_gone()
        if request.is_abandoned:
            return True
        try:
            is_done = self._run_piece(steps)
        except ProtocolError as error:
            connection.refuse(error)
            return True
        if is_done:
            connection.release_requests()
        return is_done
