"""Clients that are about to send again: whom a turn's write waits for.

A producer with one request in flight sends the next one as soon as it has its answer. Where several do, the one that is
back first would start a write, a send to each follower and two flushes for itself alone, and the others, some
microseconds behind, the next: twice the work of one round for all. So a turn waits for those who are expected, as
PostgreSQL's commit_delay does for a transaction's siblings, but only for clients that came back at once the last time,
and not longer than they may take. Who is alone, or keeps several requests in flight, is never waited for.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Protocol

#: Gives the processor to a client that wants it, while the loop looks for its request. Not everywhere.
give_way: Callable[[], None] = getattr(os, "sched_yield", lambda: None)


class Sibling(Protocol):
    """What is kept with each client connection."""

    #: When its last produce request was answered; 0: it has sent another one since, or never had an answer.
    answered_s: float
    #: The last time it sent again at once.
    comes_back: bool


class Siblings:
    """Of one node. `now`: seconds, in microseconds or finer. `wait_s`: how soon after its answer a client has to send
    again, to be expected the next time, and how long it is expected then; 0: nobody ever is."""

    def __init__(self, now: Callable[[], float], wait_s: float) -> None:
        self._now = now
        self._wait_s = wait_s
        #: In the order of their answers.
        self._expected: dict[Sibling, None] = {}
        #: Since when a turn has waited; 0: none does.
        self._waiting_since_s = 0.0

    def answered(self, client: Sibling) -> None:
        """All that it asked for is answered, last a produce request that had to wait for that."""
        client.answered_s = self._now()
        if client.comes_back:
            self._expected[client] = None

    def sent(self, client: Sibling) -> None:
        """A produce request of it is here."""
        if client.answered_s:
            client.comes_back = self._now() - client.answered_s < self._wait_s
            client.answered_s = 0.0
            self._expected.pop(client, None)

    def gone(self, client: Sibling) -> None:
        self._expected.pop(client, None)

    def must_wait(self) -> bool:
        """Asked by a turn that has something to write, again and again until it may."""
        if self._expected:
            now_s = self._now()
            self._waiting_since_s = self._waiting_since_s or now_s
            if now_s - self._waiting_since_s >= self._wait_s:
                # Others were answered meanwhile, and others: the loop has waited long enough.
                self._expected.clear()
            while self._expected:
                first = next(iter(self._expected))
                if now_s - first.answered_s < self._wait_s:
                    return True
                del self._expected[first]
                first.comes_back = False
        self._waiting_since_s = 0.0
        return False
