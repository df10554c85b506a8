"""One loop turn: everything that arrived together leaves together.

Sockets, the flusher and timers only *note* what is to be done; once per turn of the event loop the notes are
worked off in the order that costs least latency (performance.md section 4, "flush once per loop turn"):

1. partitions write what was produced to them, one vectored write each, and tell their Raft group;
2. peers get one send each, clients get one send each;
3. the flush round starts beside the loop: last, because its thread then competes for the interpreter, and what a
   client waits for is the second fastest disk, not this one.

While a flush round is under way, small appends are held back until it is over (step 1 waits): they could not be
durable any earlier, and one write, one range per follower and one acknowledgement then do for all of them.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

#: Appends of a node that are not held back any longer: from here on, overlapping the disk with the network gains more
#: than another request in the same write saves.
HOLD_BYTES = 32 * 1024


class Writer(Protocol):
    def write_pending(self) -> None: ...


class Sender(Protocol):
    def flush(self) -> None: ...


class Rounds(Protocol):
    """What a turn needs of `storage.group_commit.FlushRounds`."""

    @property
    def is_in_flight(self) -> bool: ...
    def start(self) -> None: ...


class Turn:
    """The notes of the present turn. One per node; not thread safe. `use` it with the flush rounds first."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._rounds: Rounds
        #: In the order noted; each once.
        self._writers: list[Writer] = []
        self._staged_bytes = 0
        self._senders: list[Sender] = []
        self._scheduled = False

    def use(self, rounds: Rounds) -> None:
        self._rounds = rounds

    def note_writer(self, writer: Writer) -> None:
        """The caller sees to it that it is noted once (it knows whether it has work pending)."""
        self._writers.append(writer)
        if not self._scheduled:
            self.schedule()

    def note_staged(self, size_bytes: int) -> None:
        self._staged_bytes += size_bytes

    def note_sender(self, sender: Sender) -> None:
        self._senders.append(sender)
        if not self._scheduled:
            self.schedule()

    def schedule(self) -> None:
        """Have a turn run, also where only the flush round may have work."""
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._run)

    def write_staged(self) -> None:
        """Write what was held back. Called by the rounds when one is over, before the next begins."""
        writers, self._writers = self._writers, []
        self._staged_bytes = 0
        for writer in writers:
            writer.write_pending()

    def _send(self) -> None:
        # A long poll that is answered here makes its connection a sender of this same turn.
        while self._senders:
            senders, self._senders = self._senders, []
            for sender in senders:
                sender.flush()

    def _run(self) -> None:
        if self._writers and (self._staged_bytes >= HOLD_BYTES or not self._rounds.is_in_flight):
            self.write_staged()
        self._send()
        self._rounds.start()
        self._scheduled = False
        # The answers to a round that was over at once.
        self._send()
        if self._writers and not self._rounds.is_in_flight:
            self.schedule()
