"""The end of a loop iteration: what arrived together is sent, written and flushed together.

Sockets, the flusher and timers only register what is to be done. Once per iteration of the loop (a *turn*) it is done,
in the order that costs least latency (performance.md section 4, "flush once per loop turn"):

1. Partitions pass the produced records to their Raft group.
2. Each peer and each client gets one send. The peers' carry the appends to the followers, and come first: whatever
   clients do, heartbeats leave. If the clients' sends take long, the rest of them wait for the next turn.
3. Each partition writes, with one vectored write. It writes after the send, because the followers can work meanwhile.
4. The flush round starts. It comes last because a client waits for the second fastest disk, and that is a follower's.
   If the disk finishes the round at once (storage.file_disk), its answers are sent, too.

Before a write, the loop polls the sockets a few more times. On a machine with fewer cores than processes the next
requests come within microseconds, and can share a write, a send to each follower and a flush
(docs/performance-notes.md). The loop polls for longer only if producers are expected to send again (`commit_delay`).
Everything but writing goes on meanwhile. Appends do not wait for a flush round that is under way: in a measurement that
made 16 KB requests up to a quarter slower.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol

from broker.scheduling.budget import LoopBudget
from broker.scheduling.commit_delay import CommitDelay, yield_processor

#: How often the loop polls the sockets for more requests before a write.
POLLS_BEFORE_WRITING = 3
#: Time for the sends to clients in one turn. Looking for more records for a long poll is part of its send.
SENDS_S = 0.002
#: The clock is read after so many sends to clients. Most turns have fewer.
SENDS_PER_READING = 8


class Writer(Protocol):
    """A partition that has something to write."""

    def send_pending(self) -> None: ...
    def write_pending(self) -> None: ...


class Sender(Protocol):
    """A connection that has something to send."""

    def flush(self) -> None: ...


class Rounds(Protocol):
    """What a turn needs of `storage.group_commit.FlushRounds`."""

    def start(self) -> None: ...


class Turn:
    """What was registered for the present loop iteration. One per node; not thread safe. Call `set_rounds` first."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, commit_delay: CommitDelay, budget: LoopBudget
    ) -> None:
        self._loop = loop
        self.commit_delay = commit_delay
        self.budget = budget
        self._rounds: Rounds
        #: In the order of registration, each once.
        self._writers: list[Writer] = []
        self._links: list[Sender] = []
        self._senders: deque[Sender] = deque()
        self._scheduled = False
        #: How often the loop has polled for more since there is something to write.
        self._polls = 0

    def set_rounds(self, rounds: Rounds) -> None:
        self._rounds = rounds

    def add_writer(self, writer: Writer) -> None:
        """Have `writer` write in this turn. The caller adds it once per turn: it knows whether it has work pending."""
        self._writers.append(writer)
        if not self._scheduled:
            self.schedule()

    def add_link(self, link: Sender) -> None:
        """Have a connection to a peer send in this turn. The caller adds it once per turn."""
        self._links.append(link)
        if not self._scheduled:
            self.schedule()

    def add_sender(self, sender: Sender) -> None:
        """Have a client's connection, or a long poll, send in this turn. The caller adds it once per turn."""
        self._senders.append(sender)
        if not self._scheduled:
            self.schedule()

    def schedule(self) -> None:
        """Have a turn run. Needed only where neither a writer nor a sender was added, but a flush round may have
        work."""
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._run)

    def _send(self) -> None:
        """Send, to clients until SENDS_S have passed: what is left is for the next turn. A long poll that is answered
        here makes its connection a sender of this same turn."""
        senders = self._senders
        ends_s = 0.0
        while self._links or senders:
            links, self._links = self._links, []
            for link in links:
                link.flush()
            for _ in range(min(len(senders), SENDS_PER_READING)):
                senders.popleft().flush()
            if senders:
                now_s = self.budget.now()
                ends_s = ends_s or now_s + SENDS_S
                if now_s >= ends_s:
                    return

    def _run(self) -> None:
        self.budget.iteration_begins()
        writers = self._take_writers()
        for writer in writers:
            writer.send_pending()
        self._send()
        for writer in writers:
            writer.write_pending()
        self._rounds.start()
        self._scheduled = False
        # The answers of a flush round that is already over.
        self._send()
        if self._writers or self._senders:
            self.schedule()

    def _take_writers(self) -> list[Writer]:
        """Remove and return the partitions that write in this turn; none while the loop has to poll for more."""
        if not self._writers:
            return []
        if self.commit_delay.must_wait():
            yield_processor()
            return []
        if self._polls < POLLS_BEFORE_WRITING:
            self._polls += 1
            return []
        self._polls = 0
        self.commit_delay.record_write()
        writers, self._writers = self._writers, []
        return writers
