"""Wall clocks, one per node: skewed, drifting, jumping."""

from __future__ import annotations

from tests.simulator.loop import SimulatedLoop

#: 2025-01-01T00:00:00Z: any fixed date will do, and this one is plausible in a dump.
EPOCH_MS = 1_735_689_600_000

#: How far a reading of the steady clock advances it. Far more than a real reading takes, so that a busy wait ends after
#: a few readings.
LOOK_S = 0.000_05


class SimulatedClock:
    """`broker.environment.Clock` of one node. It belongs to the machine: it survives the node's restarts."""

    def __init__(self, loop: SimulatedLoop, *, skew_ms: int = 0, drift_ppm: float = 0.0) -> None:
        """`drift_ppm`: microseconds that this clock gains per true second."""
        self._loop = loop
        self._skew_ms = skew_ms
        self._drift_ppm = drift_ppm
        #: What this clock is ahead of true time at `_since_s`, from where on it drifts.
        self._offset_ms = float(skew_ms)
        self._since_s = 0.0
        self._rate = drift_ppm / 1_000_000
        self._looks = 0

    def now_ms(self) -> int:
        return EPOCH_MS + int(self._loop.time() * 1000 + self._ahead_ms())

    def steady_s(self) -> float:
        """A reading advances the time of the whole world: a busy wait would never end otherwise."""
        self._loop.take_time(LOOK_S)
        return self._loop.time()

    def worked_s(self) -> float:
        """Every look finds a millisecond more: callbacks take no virtual time, so whatever is measured took one."""
        self._looks += 1
        return self._looks / 1000

    def jump(self, by_ms: int) -> None:
        """An operator or NTP sets the clock, forwards or backwards."""
        self._offset_ms += by_ms

    def drift(self, ppm: float) -> None:
        """From now on it gains so many microseconds per true second (or loses them)."""
        self._offset_ms, self._since_s = self._ahead_ms(), self._loop.time()
        self._rate = ppm / 1_000_000

    def correct(self) -> None:
        """As it was made: all jumps and drifts since are undone, with one jump."""
        self._offset_ms, self._since_s = float(self._skew_ms), 0.0
        self._rate = self._drift_ppm / 1_000_000

    def _ahead_ms(self) -> float:
        return self._offset_ms + (self._loop.time() - self._since_s) * 1000 * self._rate
