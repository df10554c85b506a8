"""Which producers a write waits for, so that their requests share it.

A producer with one request in flight sends the next one as soon as it has its answer. Where several producers do that,
the first one that is back would start a write, a send to each follower and two flushes for its request alone. The
others come some microseconds later and would start the same once more. So a write waits for producers that are
expected, as PostgreSQL waits for other transactions (commit_delay). A producer is expected if it came back at once the
last time. A producer that is alone, or that keeps several requests in flight, is never waited for.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Protocol

#: Gives the processor to a client that wants it, while the loop looks for its request. Not everywhere.
give_way: Callable[[], None] = getattr(os, "sched_yield", lambda: None)


class Producer(Protocol):
    """What is kept with each client connection."""

    #: When its last produce request was answered (`now`). 0: it has sent another one since, or never had an answer.
    answered_s: float
    #: The last time it sent again at once.
    comes_back: bool


class CommitDelay:
    """Of one node. `now`: seconds, in microseconds or finer. `delay_s` has two uses: a producer that sends again so
    soon after its answer is expected the next time, for as long; and no write waits longer than that in all. 0: no
    write waits."""

    def __init__(self, now: Callable[[], float], delay_s: float) -> None:
        self._now = now
        self._delay_s = delay_s
        #: In the order of their answers.
        self._expected: dict[Producer, None] = {}
        #: Since when the next write has waited; 0: it has not waited yet.
        self._waiting_since_s = 0.0

    def record_answer(self, producer: Producer) -> None:
        """All its requests are answered; the last one was a produce request that had to wait for that."""
        producer.answered_s = self._now()
        if producer.comes_back:
            self._expected[producer] = None

    def record_request(self, producer: Producer) -> None:
        """A produce request of it has come."""
        if producer.answered_s:
            producer.comes_back = self._now() - producer.answered_s < self._delay_s
            producer.answered_s = 0.0
            self._expected.pop(producer, None)

    def remove(self, producer: Producer) -> None:
        """Its connection is closed."""
        self._expected.pop(producer, None)

    def must_wait(self) -> bool:
        """Whether the next write has to wait. To be asked again and again until the write begins (`write_begins`)."""
        if not self._expected:
            return False
        now_s = self._now()
        if self._waiting_since_s and now_s - self._waiting_since_s >= self._delay_s:
            # Other producers were answered meanwhile, and others again. This write has waited long enough, and it is
            # no fault of theirs that they were not back yet.
            self._expected.clear()
            return False
        while self._expected:
            first = next(iter(self._expected))
            if now_s - first.answered_s < self._delay_s:
                self._waiting_since_s = self._waiting_since_s or now_s
                return True
            del self._expected[first]
            first.comes_back = False
        return False

    def write_begins(self) -> None:
        """From now on the write after this one is asked about."""
        self._waiting_since_s = 0.0
