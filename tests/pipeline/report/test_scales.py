"""Axes: round ticks that lie within, places that keep the order, and figures as people read them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.report.scales import (
    Linear,
    Log,
    LogMilliseconds,
    Nines,
    Seconds,
    clock,
    figure,
    nice_step,
    with_unit,
)

POSITIVE = st.floats(1e-6, 1e12)


@given(POSITIVE, st.integers(1, 12))
def test_a_step_is_1_2_or_5_and_the_smallest_that_needs_few_enough(span: float, at_most: int) -> None:
    step = nice_step(span, at_most)
    mantissa = step / 10 ** math.floor(math.log10(step) + 1e-9)
    assert min(abs(mantissa - nice) for nice in (1, 2, 5)) < 1e-6
    assert span / step <= at_most * (1 + 1e-6)
    # Any smaller one is at most half as large, or two fifths.
    assert span / (step / 2.5) > at_most * (1 - 1e-6)


@given(st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=20))
def test_a_linear_axis_holds_its_values_and_zero(values: list[float]) -> None:
    axis = Linear.over(values)
    assert all(-1e-6 <= axis.place(value) <= 1 + 1e-6 for value in [*values, 0.0])
    ticks = axis.ticks(6)
    assert 2 <= len(ticks) <= 7
    assert all(-1e-6 <= axis.place(tick.value) <= 1 + 1e-6 for tick in ticks)


@given(st.lists(POSITIVE, min_size=1, max_size=20), st.integers(2, 12))
def test_a_logarithmic_axis_holds_its_values_and_ascends(values: list[float], at_most: int) -> None:
    axis = Log.over(values)
    places = [axis.place(value) for value in sorted(values)]
    assert places == sorted(places)
    assert all(-1e-9 <= place <= 1 + 1e-9 for place in places)
    assert 1 <= len(axis.ticks(at_most)) <= at_most


def test_what_has_no_logarithm_is_at_the_low_end() -> None:
    assert Log.over([0, 5, 80]).place(0) == 0
    assert Log.over([0]).ticks(5)


def test_each_nine_takes_the_same_room() -> None:
    axis = Nines(4)
    assert [axis.place(q) for q in (0, 0.9, 0.99, 0.999, 0.9999)] == pytest.approx([0, 0.25, 0.5, 0.75, 1])
    assert axis.place(1) == 1
    labels = ["0 %", "50 %", "90 %", "99 %", "99.9 %", "99.99 %"]
    assert [tick.label for tick in axis.ticks(8)] == labels
    # Where there is little room, the tail is what the axis is for.
    assert [tick.label for tick in axis.ticks(4)] == labels[2:]


def test_time_is_cut_as_clocks_are() -> None:
    assert [tick.label for tick in Seconds(0, 56).ticks(5)] == ["0 s", "15 s", "30 s", "45 s"]
    assert [tick.label for tick in Seconds(0, 600).ticks(5)] == [
        "0:00",
        "2:00",
        "4:00",
        "6:00",
        "8:00",
        "10:00",
    ]
    assert clock(3725, 7200) == "1:02:05"
    week = Seconds(0, 7 * 86400).ticks(5)
    assert 1 < len(week) <= 6


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0"),
        (0.00123456, "0.00123"),
        (1.5, "1.5"),
        (2.0, "2"),
        (12.345, "12.3"),
        (999.6, "1,000"),
        (1234567.8, "1,234,568"),
        (-0.5, "-0.5"),
        (math.inf, "inf"),
    ],
)
def test_figures_have_three_digits_or_commas(value: float, shown: str) -> None:
    assert figure(value) == shown


def test_milliseconds_take_the_unit_that_suits_them() -> None:
    assert with_unit(26_018, "ms") == ("26", "s")
    assert with_unit(0.48, "ms") == ("480", "\N{MICRO SIGN}s")
    assert with_unit(2679.3, "records/s") == ("2,679", "records/s")
    assert [tick.label for tick in LogMilliseconds(0.1, 10_000).ticks(6)] == [
        "100 \N{MICRO SIGN}s", "1 ms", "10 ms", "100 ms", "1 s", "10 s",
    ]  # fmt: skip
