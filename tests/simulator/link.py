"""One direction between two nodes: what happens to everything that travels it."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from tests.simulator.loop import SimulatedLoop


@dataclass
class LinkDelay:
    """Travelling time: a floor, an exponential part, and now and then a spike."""

    min_s: float = 0.000_05
    mean_extra_s: float = 0.000_15
    spike_rate: float = 0.005
    spike_s: float = 0.02

    def sample_s(self, rng: random.Random) -> float:
        delay_s = self.min_s + rng.expovariate(1.0) * self.mean_extra_s
        if rng.random() < self.spike_rate:
            delay_s += rng.random() * self.spike_s
        return delay_s


class Link:
    """Carries events from `source` to `target`.

    cut: what would arrive is lost. stalled: it is held, and arrives when the stall ends.
    """

    def __init__(
        self, loop: SimulatedLoop, rng: random.Random, source: str, target: str, delay: LinkDelay
    ) -> None:
        self.source = source
        self.target = target
        self.delay = delay
        self.is_cut = False
        self._loop = loop
        self._rng = rng
        self._stalled = False
        #: Arrivals held by the stall, in order. Invariant: empty unless stalled.
        self._held: list[tuple[Callable[[], None], Callable[[], None]]] = []

    def carry(self, arrive: Callable[[], None], lose: Callable[[], None], not_before_s: float = 0.0) -> float:
        """Have `arrive` called after the link's delay, or `lose` if the link is cut by then.

        `not_before_s` keeps the order of a stream. Returns the planned moment.
        """
        at_s = max(self._loop.time() + self.delay.sample_s(self._rng), not_before_s)
        self._loop.call_at(at_s, self._arrived, arrive, lose, context=self._loop.world.new_context())
        return at_s

    def stall(self) -> None:
        self._stalled = True

    def unstall(self) -> None:
        self._stalled = False
        held, self._held = self._held, []
        for arrive, lose in held:
            self._loop.call_soon(self._arrived, arrive, lose, context=self._loop.world.new_context())

    def _arrived(self, arrive: Callable[[], None], lose: Callable[[], None]) -> None:
        if self.is_cut:
            lose()
        elif self._stalled:
            self._held.append((arrive, lose))
        else:
            arrive()
