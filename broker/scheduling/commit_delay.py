"""The commit delay: a write waits for producers that are about to send again, so that their requests share it.

A producer with one request in flight sends the next one as soon as it has its answer. If several producers do
that, the first request would start a write, a send to each follower and two flushes for itself alone. The other
requests come some microseconds later and would start the same once more. So a write waits for producers that are
expected to send, as PostgreSQL waits for other transactions (commit_delay). A producer is expected if it sent its last
request within the delay after the answer before it. A write never waits for a producer that is alone or keeps several
requests in flight.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Protocol

#: Yields the processor to a client that is ready to run, while the loop polls for its request. Does nothing on systems
#: without sched_yield.
yield_processor: Callable[[], None] = getattr(os, "sched_yield", lambda: None)


class Producer(Protocol):
    """What the commit delay keeps with each client connection."""

    #: Time of the answer to its last produce request (`now`, seconds). 0: it has sent another request since, or has had
    #: no answer yet.
    answered_s: float
    #: Whether it sent its last produce request within the delay after an answer.
    resends_at_once: bool


class CommitDelay:
    """The commit delay of one node. `now`: seconds, with a resolution of a microsecond or finer.

    `delay_s` (varve.commit.delay.us) has two uses. A producer that sends within it after an answer is expected for that
    long after its next answer. And no write waits longer than that in all. With 0, no write waits.
    """

    def __init__(self, now: Callable[[], float], delay_s: float) -> None:
        self._now = now
        self._delay_s = delay_s
        #: The producers that are expected to send, in the order of their answers.
        self._expected: dict[Producer, None] = {}
        #: Since when the next write waits (`now`, seconds); 0: it has not waited yet.
        self._waiting_since_s = 0.0

    def record_answer(self, producer: Producer) -> None:
        """All requests of the producer are answered. The last one was a produce request that was not answered at
        once."""
        producer.answered_s = self._now()
        if producer.resends_at_once:
            self._expected[producer] = None

    def record_request(self, producer: Producer) -> None:
        """A produce request of the producer has come."""
        if producer.answered_s:
            producer.resends_at_once = self._now() - producer.answered_s < self._delay_s
            producer.answered_s = 0.0
            self._expected.pop(producer, None)

    def remove(self, producer: Producer) -> None:
        """The producer's connection is closed."""
        self._expected.pop(producer, None)

    def must_wait(self) -> bool:
        """Whether the next write has to wait. Call it in each loop iteration until the write begins
        (`record_write`)."""
        if not self._expected:
            return False
        now_s = self._now()
        if self._waiting_since_s and now_s - self._waiting_since_s >= self._delay_s:
            # This write has waited for the whole delay. The producers that are still expected were answered meanwhile.
            # They stay `resends_at_once`: they have not had the whole delay to send again.
            self._expected.clear()
            return False
        while self._expected:
            first = next(iter(self._expected))
            if now_s - first.answered_s < self._delay_s:
                self._waiting_since_s = self._waiting_since_s or now_s
                return True
            del self._expected[first]
            first.resends_at_once = False
        return False

    def record_write(self) -> None:
        """The write begins. `must_wait` is about the next one from now on."""
        self._waiting_since_s = 0.0
