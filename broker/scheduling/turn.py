"""One iteration of the event loop: what arrived together leaves together.

Sockets, the flusher and timers only note what is to be done. Once per iteration of the loop (a *turn*) the notes are
worked off, in the order that costs least latency (performance.md section 4, "flush once per loop turn"):

1. Partitions hand what was produced to them to their Raft group.
2. Each peer and each client gets one send. The followers' appends leave with it.
3. Each partition writes, with one vectored write. It writes after the send because followers are at work meanwhile.
4. The flush round starts. It comes last because a client waits for the second fastest disk, which is not this one. If
   the disk finishes the round at once (storage.file_disk), there are answers, and these are sent, too.

Before it writes, a turn lets the loop look for what else has arrived, a few times. On a machine with fewer cores than
processes the next requests come within microseconds, and can share a write, a send to each follower and a flush
(docs/performance-notes.md). The loop looks for longer only if producers are expected that have just been answered
(`commit_delay`). Everything but writing goes on meanwhile. Appends are not held back for a flush round under way: that
was tried, and made 16 KB requests up to a quarter slower.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from broker.scheduling.commit_delay import CommitDelay, give_way

#: How often the loop looks before a turn writes. Each time costs one poll of the sockets.
LOOKS_BEFORE_WRITING = 3


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
    """What was noted for the present iteration of the loop. One per node; not thread safe. Call `use` with the flush
    rounds before anything else."""

    def __init__(self, loop: asyncio.AbstractEventLoop, commit_delay: CommitDelay) -> None:
        self._loop = loop
        self.commit_delay = commit_delay
        self._rounds: Rounds
        #: In the order noted; each once.
        self._writers: list[Writer] = []
        self._senders: list[Sender] = []
        self._scheduled = False
        #: How often the loop has looked for more since there is something to write.
        self._looks = 0

    def use(self, rounds: Rounds) -> None:
        self._rounds = rounds

    def note_writer(self, writer: Writer) -> None:
        """The caller notes a writer once per turn: it knows whether it has work pending."""
        self._writers.append(writer)
        if not self._scheduled:
            self.schedule()

    def note_sender(self, sender: Sender) -> None:
        """The caller notes a sender once per turn."""
        self._senders.append(sender)
        if not self._scheduled:
            self.schedule()

    def schedule(self) -> None:
        """Have a turn run, also if only the flush round may have work."""
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._run)

    def _send(self) -> None:
        # A long poll that is answered here makes its connection a sender of this same turn.
        while self._senders:
            senders, self._senders = self._senders, []
            for sender in senders:
                sender.flush()

    def _run(self) -> None:
        writers = self._take_writers()
        for writer in writers:
            writer.send_pending()
        self._send()
        for writer in writers:
            writer.write_pending()
        self._rounds.start()
        self._scheduled = False
        # The answers to a round that was over at once.
        self._send()
        if self._writers:
            self.schedule()

    def _take_writers(self) -> list[Writer]:
        """The partitions that write in this turn: none while the loop is to look for more."""
        if not self._writers:
            return []
        if self.commit_delay.must_wait():
            give_way()
            return []
        if self._looks < LOOKS_BEFORE_WRITING:
            self._looks += 1
            return []
        self._looks = 0
        self.commit_delay.write_begins()
        writers, self._writers = self._writers, []
        return writers
