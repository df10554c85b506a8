"""A circuit breaker: stop sending into a cluster that takes nothing, and come back slowly."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from pipeline.producer.rolling import RollingCount


class BreakerState(StrEnum):
    CLOSED = "closed"
    """All is sent."""
    OPEN = "open"
    """Nothing is sent."""
    HALF_OPEN = "half-open"
    """A few records are sent; their outcome decides."""
    RAMP = "ramp"
    """The cluster answers; the rate of records grows step by step, so that it is not overrun at once."""


@dataclass(frozen=True, slots=True)
class BreakerSettings:
    threshold: int = 20
    """So many failures within `window_s`, and at least `ratio` of all outcomes, open it."""
    ratio: float = 0.5
    window_s: float = 10.0
    open_s: float = 5.0
    probes: int = 5
    """So many records are under way at once while it is half-open, and so many have to succeed."""
    ramp_s: float = 5.0
    """0: closed as soon as the probes have succeeded."""
    ramp_initial_per_s: float = 50.0
    ramp_doubling_s: float = 0.5
    """The rate that the ramp allows doubles in this time."""

    def __post_init__(self) -> None:
        if self.threshold < 1 or self.probes < 1:
            raise ValueError("a breaker needs threshold >= 1 and probes >= 1")
        if not 0 < self.ratio <= 1:
            raise ValueError("a breaker needs 0 < ratio <= 1")
        if self.window_s <= 0 or self.open_s <= 0 or self.ramp_s < 0:
            raise ValueError("a breaker needs window_s > 0, open_s > 0 and ramp_s >= 0")
        if self.ramp_initial_per_s <= 0 or self.ramp_doubling_s <= 0:
            raise ValueError("a breaker needs ramp_initial_per_s > 0 and ramp_doubling_s > 0")


class CircuitBreaker:
    """Facts go in, `admit` decides; no clock is read. `now` is in seconds of any monotonic clock.

    An outcome counts for the time at which its record was sent. A record that was sent before the breaker became
    half-open says nothing about the cluster after that, however late it expires.
    """

    def __init__(self, settings: BreakerSettings) -> None:
        self._settings = settings
        self._state = BreakerState.CLOSED
        self._since = -math.inf
        # Outcomes of records that were sent earlier are history.
        self._counts_from = -math.inf
        self._failures = RollingCount(settings.window_s)
        self._successes = RollingCount(settings.window_s)
        self._probes_under_way = 0
        self._probes_succeeded = 0
        self._ramp_admitted = 0
        self._openings = 0

    @property
    def openings(self) -> int:
        """How often it opened, from whatever state."""
        return self._openings

    def state(self, now: float) -> BreakerState:
        """The state at this time: an open breaker becomes half-open, and a ramp ends, by time alone."""
        settings = self._settings
        if self._state is BreakerState.OPEN and now >= self._since + settings.open_s:
            self._enter(BreakerState.HALF_OPEN, now)
            self._counts_from = now
            self._probes_under_way = self._probes_succeeded = 0
        elif self._state is BreakerState.RAMP and now >= self._since + settings.ramp_s:
            self._close(now)
        return self._state

    def admit(self, now: float) -> bool:
        """Whether one more record may be sent. If so it is to be sent, and its outcome told; else call `released`."""
        state = self.state(now)
        if state is BreakerState.CLOSED:
            return True
        if state is BreakerState.HALF_OPEN:
            if self._probes_under_way + self._probes_succeeded >= self._settings.probes:
                return False
            self._probes_under_way += 1
            return True
        if state is BreakerState.RAMP and self._ramp_admitted < self._ramp_allows(now):
            self._ramp_admitted += 1
            return True
        return False

    def released(self) -> None:
        """A record that was admitted was not sent after all."""
        if self._state is BreakerState.HALF_OPEN:
            self._probes_under_way = max(0, self._probes_under_way - 1)
        elif self._state is BreakerState.RAMP:
            self._ramp_admitted = max(0, self._ramp_admitted - 1)

    def succeeded(self, sent_at: float, now: float, count: int = 1) -> None:
        """The cluster answered so many records, whether it took or refused them."""
        state = self.state(now)
        if sent_at < self._counts_from:
            return
        if state is BreakerState.CLOSED:
            self._successes.add(count, now)
        elif state is BreakerState.HALF_OPEN:
            self._probes_under_way = max(0, self._probes_under_way - count)
            self._probes_succeeded += count
            if self._probes_succeeded >= self._settings.probes:
                self._enter(BreakerState.RAMP, now)
                self._ramp_admitted = 0
                if self._settings.ramp_s == 0:
                    self._close(now)

    def failed(self, sent_at: float, now: float) -> None:
        """A record was not delivered, and the cluster is to blame: it timed out, or a broker could not take it."""
        state = self.state(now)
        if state is BreakerState.OPEN or sent_at < self._counts_from:
            return
        if state is not BreakerState.CLOSED:
            self._open(now)
            return
        self._failures.add(1, now)
        failures = self._failures.total(now)
        outcomes = failures + self._successes.total(now)
        if failures >= self._settings.threshold and failures >= self._settings.ratio * outcomes:
            self._open(now)

    def _ramp_allows(self, now: float) -> float:
        """Records since the ramp began: the integral of a rate that doubles every `ramp_doubling_s`."""
        settings = self._settings
        doublings = (now - self._since) / settings.ramp_doubling_s
        if doublings > 60:
            return math.inf
        scale = settings.ramp_initial_per_s * settings.ramp_doubling_s / math.log(2)
        return scale * (math.pow(2.0, doublings) - 1)

    def _open(self, now: float) -> None:
        self._openings += 1
        self._failures.clear()
        self._successes.clear()
        self._enter(BreakerState.OPEN, now)

    def _close(self, now: float) -> None:
        self._enter(BreakerState.CLOSED, now)

    def _enter(self, state: BreakerState, now: float) -> None:
        self._state = state
        self._since = now
