"""One loop turn: everything that arrived together leaves together.

Sockets, the flusher and timers only *note* what is to be done; once per turn of the event loop the notes are
worked off in the order that costs least latency (performance.md section 4, "flush once per loop turn"):

1. partitions hand what was produced to them to their Raft group;
2. peers get one send each, with it, clients get one send each;
3. partitions write, one vectored write each: second, because followers are at work meanwhile;
4. the flush round starts: last, because what a client waits for is the second fastest disk, not this one. A round
   that the disk finished at once (storage.file_disk) leaves answers, which are sent, too.

Where something is to be written, the turn first lets the loop look for what else has arrived, a few times: on a machine
with fewer cores than processes the next requests come within microseconds, and share a write, a send to each follower
and a flush (broker/README, what was tried). It looks for longer only where clients are expected who have just been
answered (`siblings`); what else there is to do is done meanwhile. Appends are not held back for a round that is under
way: it was tried, and made 16 KB requests up to a quarter slower.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from broker.network.siblings import Siblings, give_way

#: How often the loop looks before a turn writes. Each time costs one poll of the sockets.
LOOKS_BEFORE_WRITING = 3


class Writer(Protocol):
    def send_pending(self) -> None: ...
    def write_pending(self) -> None: ...


class Sender(Protocol):
    def flush(self) -> None: ...


class Rounds(Protocol):
    """What a turn needs of `storage.group_commit.FlushRounds`."""

    def start(self) -> None: ...


class Turn:
    """The notes of the present turn. One per node; not thread safe. `use` it with the flush rounds first."""

    def __init__(self, loop: asyncio.AbstractEventLoop, siblings: Siblings) -> None:
        self._loop = loop
        self.siblings = siblings
        self._rounds: Rounds
        #: In the order noted; each once.
        self._writers: list[Writer] = []
        self._senders: list[Sender] = []
        self._scheduled = False
        #: Times that the loop has looked for more since this turn had something to write.
        self._looks = 0

    def use(self, rounds: Rounds) -> None:
        self._rounds = rounds

    def note_writer(self, writer: Writer) -> None:
        """The caller sees to it that it is noted once (it knows whether it has work pending)."""
        self._writers.append(writer)
        if not self._scheduled:
            self.schedule()

    def note_sender(self, sender: Sender) -> None:
        self._senders.append(sender)
        if not self._scheduled:
            self.schedule()

    def schedule(self) -> None:
        """Have a turn run, also where only the flush round may have work."""
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
        """Who writes in this turn: nobody as long as the loop is to look for more."""
        if self._writers:
            if self.siblings.must_wait():
                give_way()
                return []
            if self._looks < LOOKS_BEFORE_WRITING:
                self._looks += 1
                return []
        self._looks = 0
        writers, self._writers = self._writers, []
        return writers
