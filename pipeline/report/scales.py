"""Axes: from a value to its place (0 to 1), and the round values that are worth a tick.

Every scale here is a plain value; what it draws on is `plot.py`'s.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, Self


@dataclass(frozen=True, slots=True)
class Tick:
    value: float
    label: str


class Scale(Protocol):
    def place(self, value: float) -> float:
        """0 at the beginning of the axis, 1 at its end; beyond them for a value outside."""

    def ticks(self, at_most: int) -> list[Tick]:
        """Round values within the axis, in ascending order."""


def figure(value: float) -> str:
    """A number as people read it: three significant digits below 1,000, whole numbers with commas above."""
    if value == 0:
        return "0"
    if not math.isfinite(value):
        return str(value)
    digits = 2 - math.floor(math.log10(abs(value)))
    if digits <= 0:
        return f"{value:,.0f}"
    shown = f"{value:.{min(digits, 9)}f}"
    return shown.rstrip("0").rstrip(".") or "0"


def nice_step(span: float, at_most: int) -> float:
    """The smallest of 1, 2 and 5 times a power of ten that cuts the span into `at_most` steps or fewer."""
    if span <= 0 or not math.isfinite(span):
        return 1.0
    rough = span / max(at_most, 1)
    power = 10.0 ** math.floor(math.log10(rough))
    # The tolerance is for spans that are a multiple but for the last bit.
    return next((m * power for m in (1, 2, 5) if m * power >= rough * (1 - 1e-9)), 10 * power)


@dataclass(frozen=True, slots=True)
class Linear:
    low: float
    high: float

    @staticmethod
    def over(values: Iterable[float], steps: int = 5) -> Linear:
        """From 0 (or below, where there are such values) to a round value that all fit under."""
        known = list(values)
        low, high = min([*known, 0.0]), max([*known, 0.0])
        step = nice_step((high - low) or 1.0, steps)
        return Linear(math.floor(low / step) * step, max(math.ceil(high / step - 1e-9), 1) * step)

    def place(self, value: float) -> float:
        return (value - self.low) / (self.high - self.low)

    def ticks(self, at_most: int) -> list[Tick]:
        step = nice_step(self.high - self.low, at_most)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [Tick(number * step, figure(number * step)) for number in range(first, last + 1)]


@dataclass(frozen=True, slots=True)
class Seconds(Linear):
    """Time since the start of the run."""

    def ticks(self, at_most: int) -> list[Tick]:
        span = self.high - self.low
        steps = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400)
        fitting = (step for step in steps if span / step <= at_most)
        step = next(fitting, 86400 * math.ceil(span / 86400 / max(at_most, 1)))
        first, last = math.ceil(self.low / step), math.floor(self.high / step + 1e-9)
        return [Tick(n * step, clock(n * step, span)) for n in range(first, last + 1)]


def clock(seconds: float, span_s: float) -> str:
    """`8 s` in a span of up to two minutes, else `1:20` (minutes) or `1:20:00`."""
    if span_s <= 120:
        return f"{figure(seconds)} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02}" if span_s < 7200 else f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


@dataclass(frozen=True, slots=True)
class Log:
    """Of positive values; what is not positive is placed at the low end."""

    low: float
    high: float

    @classmethod
    def over(cls, values: Iterable[float]) -> Self:
        """Between the 1, 2 or 5 below the least and that above the greatest positive value, ten times at least."""
        positive = [value for value in values if value > 0]
        if not positive:
            return cls(1.0, 10.0)
        low, high = _round_down(min(positive)), _round_up(max(positive))
        return cls(low, max(high, low * 10))

    def place(self, value: float) -> float:
        return math.log(max(value, self.low) / self.low) / math.log(self.high / self.low)

    def ticks(self, at_most: int) -> list[Tick]:
        first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        for factors in ((1, 2, 5), (1,)):
            values = [m * 10.0**power for power in range(first, last + 1) for m in factors]
            within = [v for v in values if self.low * (1 - 1e-9) <= v <= self.high * (1 + 1e-9)]
            if len(within) <= at_most:
                break
        every = math.ceil(len(within) / max(at_most, 1))
        return [Tick(value, self._label(value)) for value in within[::every]]

    def _label(self, value: float) -> str:
        return figure(value)


@dataclass(frozen=True, slots=True)
class LogMilliseconds(Log):
    """Durations, each tick with the unit that suits it."""

    def _label(self, value: float) -> str:
        return " ".join(with_unit(value, "ms"))


def with_unit(value: float, unit: str) -> tuple[str, str]:
    """A figure and its unit; milliseconds become microseconds or seconds where that is easier to read."""
    if unit == "ms" and abs(value) >= 1000:
        return figure(value / 1000), "s"
    if unit == "ms" and 0 < abs(value) < 1:
        return figure(value * 1000), "\N{MICRO SIGN}s"
    return figure(value), unit


@dataclass(frozen=True, slots=True)
class Nines:
    """Quantiles (0 to 1), on which each further nine takes the same room: place is -log10(1 - quantile)."""

    nines: float
    """At the end of the axis: 3 is 99.9 %."""

    def place(self, value: float) -> float:
        return min(-math.log10(max(1 - value, 1e-300)) / self.nines, 1.0)

    def ticks(self, at_most: int) -> list[Tick]:
        whole = math.floor(self.nines + 1e-9)
        ticks = [Tick(0.0, "0 %"), Tick(0.5, "50 %")] + [
            Tick(1 - 10.0**-n, f"{nines_percent(n)} %") for n in range(1, whole + 1)
        ]
        fitting = [tick for tick in ticks if self.place(tick.value) <= 1 + 1e-9]
        # The beginning says least; then the median.
        for spare in (0.0, 0.5):
            if len(fitting) > at_most:
                fitting = [tick for tick in fitting if tick.value != spare]
        return fitting


def nines_percent(nines: int) -> str:
    """`90`, `99`, `99.9`, ...: without the rounding of 100 * (1 - 10 ** -nines)."""
    return ("90", "99")[nines - 1] if nines <= 2 else "99." + "9" * (nines - 2)


@dataclass(frozen=True, slots=True)
class Categories:
    """Names in a row, each in the middle of its share; a value is the index of a name."""

    names: Sequence[str]

    def place(self, value: float) -> float:
        return (value + 0.5) / len(self.names)

    def ticks(self, at_most: int) -> list[Tick]:
        return [Tick(index, name) for index, name in enumerate(self.names)]


def _round_down(value: float) -> float:
    power = 10.0 ** math.floor(math.log10(value))
    return max(m * power for m in (1, 2, 5) if m * power <= value * (1 + 1e-9))


def _round_up(value: float) -> float:
    power = 10.0 ** math.floor(math.log10(value))
    return next((m * power for m in (1, 2, 5) if m * power >= value * (1 - 1e-9)), 10 * power)
