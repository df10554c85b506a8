"""Durations, counted in classes of time."""

from __future__ import annotations

import pytest

from storage.durations import Durations


@pytest.mark.parametrize(
    ("seconds", "kind"),
    [(0.0, 0), (0.9e-6, 0), (1e-6, 1), (64e-6, 7), (63.9e-6, 6), (0.001, 10), (1.0, 20), (1e6, 40)],
)
def test_class_k_has_what_took_less_than_two_to_the_k_microseconds(seconds: float, kind: int) -> None:
    durations = Durations()
    durations.add(seconds)
    assert durations.counts[kind] == 1
    assert sum(durations.counts) == 1


def test_durations_are_added_up() -> None:
    durations = Durations()
    for seconds in (0.25, 0.5, 0.000_001):
        durations.add(seconds)
    assert durations.total_us == 750_001
