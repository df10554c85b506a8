"""Client-side throttling: offer an overloaded cluster only a little more than it takes."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from pipeline.producer.rolling import RollingCount


@dataclass(frozen=True, slots=True)
class ThrottleSettings:
    multiplier: float = 2.0
    """K: requests beyond K times the accepted ones are dropped. At 2, half of what is sent may fail before any is
    dropped; a value nearer to 1 drops earlier, and notices later that the cluster is well again."""
    window_s: float = 120.0

    def __post_init__(self) -> None:
        if self.multiplier < 1 or self.window_s <= 0:
            raise ValueError("a throttle needs multiplier >= 1 and window_s > 0")


class AdaptiveThrottle:
    """Drops a request with probability max(0, (requests - K * accepts) / (requests + 1)) over a sliding window.

    This is the adaptive throttling of "Site Reliability Engineering" (chapter 21, Handling Overload). A dropped request
    counts as a request, so that a client whose demand stays high goes on dropping. Some requests always go
    through; their answers show when the cluster is well again.

    It does no I/O and reads no clock: facts go in, with `now` in seconds of any monotonic clock.
    """

    def __init__(self, settings: ThrottleSettings, rng: Random) -> None:
        self._settings = settings
        self._rng = rng
        self._requests = RollingCount(settings.window_s)
        self._accepts = RollingCount(settings.window_s)

    def drop_probability(self, now: float) -> float:
        requests = self._requests.total(now)
        wanted = self._settings.multiplier * self._accepts.total(now)
        return max(0.0, (requests - wanted) / (requests + 1))

    def admit(self, now: float) -> bool:
        """Whether the request may be made. It is counted either way."""
        admitted = self._rng.random() >= self.drop_probability(now)
        self._requests.add(1, now)
        return admitted

    def accepted(self, count: int, now: float) -> None:
        """The cluster took so many requests."""
        self._accepts.add(count, now)
