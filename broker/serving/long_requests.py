"""Requests that would keep the event loop busy for long are served in pieces.

A small request can ask for seconds of work: 740 KB of zstd can be a million records, and a compacted topic has to check
each of them. Between the pieces other clients, peers and heartbeats are served. Otherwise the node would miss its
heartbeats and lose its leaderships, and the client would send the same request to the next leader.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

from protocol.records.record import RECORDS_PER_STEP

if TYPE_CHECKING:
    from broker.network.connection import Request

#: Long requests that are served at a time, in turns. Each may hold a decompressed batch (protocol.records.compression
#: bounds its size). Further ones wait until one of these is done.
MAX_CONCURRENT = 4


class LongRequests:
    """The long requests of one node."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._running: deque[tuple[Request, Iterator[int]]] = deque()
        self._waiting: deque[tuple[Request, Iterator[int]]] = deque()
        self._is_scheduled = False

    def serve(self, request: Request, steps: Iterator[int]) -> None:
        """Serve a request by running all of `steps`. Before each step the iterator yields how many records the step is
        going to read or look up.

        If these are few, the request is done when this returns. Otherwise no other request of this client is served
        until it is done, so that the client's requests keep their order. If the client disconnects, the remaining
        steps are not run. Between two steps other requests are served, which may change or close the replica.
        """
        if self._run_steps(steps):
            return
        request.connection.hold_requests()
        self._waiting.append((request, steps))
        self._schedule()

    @staticmethod
    def _run_steps(steps: Iterator[int]) -> bool:
        """Run steps until RECORDS_PER_STEP records are reached. True: there are no more steps."""
        records = 0
        for ahead in steps:
            records += ahead
            if records >= RECORDS_PER_STEP:
                return False
        return True

    def _schedule(self) -> None:
        if not self._is_scheduled and (self._running or self._waiting):
            self._is_scheduled = True
            self._loop.call_soon(self._run_piece)

    def _run_piece(self) -> None:
        """Run one piece of one request."""
        self._is_scheduled = False
        while self._waiting and len(self._running) < MAX_CONCURRENT:
            self._running.append(self._waiting.popleft())
        request, steps = self._running.popleft()
        if not request.is_abandoned:
            if self._run_steps(steps):
                request.connection.release_requests()
            else:
                self._running.append((request, steps))
        self._schedule()
