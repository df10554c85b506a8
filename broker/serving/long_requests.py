"""Requests that would keep the loop for long, served in pieces.

A small request can ask for seconds of work: 740 KB of zstd are a million records, which a compacted topic wants looked
at one by one. Meanwhile other clients, peers and heartbeats have their turn: a leader that is not heard for an election
timeout is none any more, and its successor would be sent the same request.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

from protocol.records.record import RECORDS_PER_STEP

if TYPE_CHECKING:
    from broker.network.connection import Request

#: Requests that take turns; each may hold a batch decompressed (protocol.records.compression has the bound). The others
#: wait until one of these is done.
UNDER_WAY = 4


class LongRequests:
    """Of one node."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._under_way: deque[tuple[Request, Iterator[int]]] = deque()
        self._waiting: deque[tuple[Request, Iterator[int]]] = deque()
        self._is_scheduled = False

    def serve(self, request: Request, steps: Iterator[int]) -> None:
        """Serve a request by taking all of `steps`, each of which tells how many records it will look at (or look up).
        As long as they are few it is done when this returns. Otherwise nothing else is taken from this client until it
        is, so that its requests keep their order; and if the client goes away, the rest is left undone.

        Between two steps anything may happen to what the request is about."""
        if self._is_done(steps):
            return
        request.connection.hold_requests()
        self._waiting.append((request, steps))
        self._schedule()

    @staticmethod
    def _is_done(steps: Iterator[int]) -> bool:
        """Take steps, until there are none, or before the one that is too much."""
        records = 0
        for ahead in steps:
            records += ahead
            if records >= RECORDS_PER_STEP:
                return False
        return True

    def _schedule(self) -> None:
        if not self._is_scheduled and (self._under_way or self._waiting):
            self._is_scheduled = True
            self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        """One piece of one request."""
        self._is_scheduled = False
        while self._waiting and len(self._under_way) < UNDER_WAY:
            self._under_way.append(self._waiting.popleft())
        request, steps = self._under_way.popleft()
        if not request.is_abandoned:
            if self._is_done(steps):
                request.connection.release_requests()
            else:
                self._under_way.append((request, steps))
        self._schedule()
