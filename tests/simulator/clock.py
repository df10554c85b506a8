"""Wall clocks, one per node: skewed, drifting, jumping."""

from __future__ import annotations

import asyncio

#: 2025-01-01T00:00:00Z: any fixed date will do, and this one is plausible in a dump.
EPOCH_MS = 1_735_689_600_000


class SimulatedClock:
    """`broker.environment.Clock` of one node. It belongs to the machine: it survives the node's restarts."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, skew_ms: int = 0, drift_ppm: float = 0.0) -> None:
        """`drift_ppm`: microseconds that this clock gains per true second."""
        self._loop = loop
        self._offset_ms = skew_ms
        self._rate = 1.0 + drift_ppm / 1_000_000

    def now_ms(self) -> int:
        return EPOCH_MS + self._offset_ms + int(self._loop.time() * 1000 * self._rate)

    def jump(self, by_ms: int) -> None:
        """An operator or NTP sets the clock, forwards or backwards."""
        self._offset_ms += by_ms
