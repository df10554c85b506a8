"""Reads that must not come from a stale leader (ReadIndex, Raft thesis section 6.4).

A read waits for one liveness round that began after the read arrived: numbered pings to all peers whose echoes confirm
that a majority of each group's voters still follows this leader in this term. One round serves all groups and all
reads that came before it began.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from broker.replication.replica import Replica
from broker.scheduling.background import Background, Steps
from broker.scheduling.ticks import SLOW_TICK_S, Ticks
from storage.log_types import GroupKey

#: A leader that cannot confirm itself for this long answers "not leader": the client looks for another.
CONFIRM_TIMEOUT_S = 1.0

#: Replicas of a read that are looked at in one step.
FEW = 50

Answer = Callable[[set[GroupKey]], None]


class Rounds(Protocol):
    """What reads need of `broker.replication.heartbeat.Heartbeat`."""

    #: Called whenever a peer has answered.
    on_echo: list[Callable[[], None]]

    def begin_round(self) -> int:
        """Begin a liveness round with this turn. Returns the number of its first ping."""

    def confirmed(self, replica: Replica, first_number: int) -> bool:
        """Whether a majority of voters echoed a ping of this number or a later one."""


class _Read:
    __slots__ = ("answer", "confirmed", "deadline", "first_number", "has_news", "is_busy", "open")

    def __init__(
        self, first_number: int, deadline: float, replicas: Sequence[Replica], answer: Answer
    ) -> None:
        self.first_number = first_number
        self.deadline = deadline
        self.open = list(replicas)
        self.confirmed: set[GroupKey] = set()
        self.answer = answer
        #: Of a read of many replicas: they are being looked at in steps, and whether to look once more then.
        self.is_busy = self.has_news = False


class Reads:
    """The reads that wait for a round."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, background: Background, rounds: Rounds, ticks: Ticks
    ) -> None:
        self._loop = loop
        self._background = background
        self._rounds = rounds
        self._waiting: list[_Read] = []
        rounds.on_echo.append(self.echo_arrived)
        ticks.every(SLOW_TICK_S, self.tick)

    def confirm(self, replicas: Sequence[Replica], answer: Answer) -> None:
        """Call `answer` with the keys of those replicas that are confirmed leaders, at once where no peer is needed.
        Each replica is named once."""
        if not replicas:  # whoever asks a node that leads nothing of what it wants costs the others no ping
            answer(set())
            return
        deadline = self._loop.time() + CONFIRM_TIMEOUT_S
        read = _Read(self._rounds.begin_round(), deadline, replicas, answer)
        if self._is_over(read):
            answer(read.confirmed)
        else:
            self._waiting.append(read)

    def echo_arrived(self) -> None:
        """A peer echoed: some reads may be complete."""
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, []
        for read in waiting:
            if self._is_over(read):
                read.answer(read.confirmed)
            else:
                self._waiting.append(read)

    def tick(self, now: float) -> None:
        """Answer what waited too long with what was confirmed."""
        late = [read for read in self._waiting if read.deadline <= now and not read.is_busy]
        if late:
            self._waiting = [read for read in self._waiting if read.deadline > now or read.is_busy]
            for read in late:
                read.answer(read.confirmed)

    def _is_over(self, read: _Read) -> bool:
        """Look at the replicas that are not confirmed yet. Those of a read of many are looked at in steps."""
        if len(read.open) <= FEW and not read.is_busy:
            for _ in self._advance(read):
                pass
            return not read.open
        read.has_news = True
        if not read.is_busy:
            read.is_busy = True
            self._loop.call_soon(self._background.run, self._advance_in_steps(read))
        return False

    def _advance_in_steps(self, read: _Read) -> Steps:
        while read.has_news and read.open:
            read.has_news = False
            yield from self._advance(read)
        read.is_busy = False
        if not read.open:
            self._waiting.remove(read)
            read.answer(read.confirmed)

    def _advance(self, read: _Read) -> Steps:
        still_open: list[Replica] = []
        for replica in read.open:
            yield
            if not replica.is_serving:
                continue
            if self._rounds.confirmed(replica, read.first_number):
                read.confirmed.add(replica.key)
            else:
                still_open.append(replica)
        read.open = still_open
