"""Work in steps: what would keep the event loop busy for long pauses often.

Such work is an iterator, mostly a generator that yields after each thing that it has done. It is advanced for
PIECE_S at a time, and between two pieces everything else goes on. Rules:

- A step, from one `yield` to the next, takes less than a millisecond.
- Steps that have to wait for something yield PAUSE, and look again.
- Everything may have changed after a `yield`: the metadata, who leads, which log a replica has, whether it is open.

`Background` runs the steps of work that no client waits for: a node replays metadata, opens replicas, loads groups,
and looks through everything it has now and then. The steps of requests are run by broker.serving.long_requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from enum import Enum, auto
from functools import partial
from typing import Any

from broker.scheduling.budget import LoopBudget

#: What is yielded means nothing, but for PAUSE.
Steps = Iterator[Any]

#: How long work is done at a time, while other work waits.
PIECE_S = 0.001
#: Time for the work of a node that no client waits for, in one loop iteration.
BACKGROUND_S = 0.001


#: Yielded by steps that cannot go on yet: they are run again when PAUSE_S have passed.
PAUSE = object()
PAUSE_S = 0.002


class Progress(Enum):
    """How far a piece has got."""

    MORE = auto()
    PAUSED = auto()
    """There are more steps, which have to wait for something."""
    DONE = auto()


def run_piece(steps: Steps, now: Callable[[], float]) -> Progress:
    """Run steps until PIECE_S have passed."""
    ends_s = 0.0
    for yielded in steps:
        if yielded is PAUSE:
            return Progress.PAUSED
        now_s = now()
        if not ends_s:  # the first step is not measured: mostly there are no more
            ends_s = now_s + PIECE_S
        elif now_s >= ends_s:
            return Progress.MORE
    return Progress.DONE


class Background:
    """The background work of one node."""

    def __init__(self, loop: asyncio.AbstractEventLoop, now: Callable[[], float]) -> None:
        """`now`: as `LoopBudget`."""
        self._loop = loop
        self._budget = LoopBudget(loop, now, BACKGROUND_S)

    def run(self, steps: Steps) -> None:
        """Run all of `steps`: the first piece at once if there is time in this iteration, the others in turns with
        other work."""
        self._go_on(steps, Progress.MORE if self._budget.is_spent() else run_piece(steps, self._budget.now))

    def begin(self, steps: Steps) -> None:
        """As `run`, but the first piece is run at once in any case. For what mostly is a few steps and nothing more."""
        self._go_on(steps, run_piece(steps, self._budget.now))

    def _go_on(self, steps: Steps, progress: Progress) -> None:
        if progress is Progress.MORE:
            self._budget.wait(partial(self.run, steps))
        elif progress is Progress.PAUSED:
            self._loop.call_later(PAUSE_S, self.run, steps)
