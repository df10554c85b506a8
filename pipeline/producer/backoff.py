"""How long to wait before an attempt is repeated."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

# 2 to the power of this is beyond any cap; a larger exponent would only overflow.
_MAX_EXPONENT = 62


@dataclass(frozen=True, slots=True)
class FullJitterBackoff:
    """A delay drawn evenly between a floor and a ceiling that doubles with each attempt, up to a cap.

    Clients that failed together then do not come back together ("full jitter", Marc Brooker, 2015). The floor keeps a
    draw near zero from being a retry at once.
    """

    floor_s: float = 0.05
    base_s: float = 0.2
    """The ceiling of the first delay."""
    cap_s: float = 10.0

    def __post_init__(self) -> None:
        if not 0 <= self.floor_s <= self.base_s <= self.cap_s:
            raise ValueError(
                f"a backoff needs 0 <= floor_s <= base_s <= cap_s, not {self.floor_s}, {self.base_s}, {self.cap_s}"
            )

    def ceiling_s(self, attempts: int) -> float:
        """The longest delay after so many attempts (1 or more) have failed."""
        return min(self.cap_s, self.base_s * 2.0 ** min(max(attempts - 1, 0), _MAX_EXPONENT))

    def delay_s(self, attempts: int, rng: Random) -> float:
        return rng.uniform(self.floor_s, self.ceiling_s(attempts))
