"""What `scripts/bench purge` makes of its windows."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from benchmarks.purge import Beside, Purges, Window, document_of, print_purge


def beside(interval_s: float | None, *ratios: float, errors: tuple[str, ...] = ()) -> Beside:
    windows = [Window(40 * ratio, 10.0) for ratio in ratios]
    return Beside(interval_s, windows, list(ratios), Purges([4.0, 8.0], list(errors)))


def test_an_effect_is_the_median_of_the_windows_and_says_how_sure_it_is() -> None:
    few, many = beside(1.0, 0.8, 0.9, 1.2), beside(1.0, *([0.8, 0.9, 1.2] * 30))
    assert few.effect == many.effect == pytest.approx(0.9)
    assert few.effect_range == (0.8, 1.2), "three windows say little"
    assert many.effect_range == (0.9, 0.9)
    entry = document_of([Beside(None, few.windows), few], {"calls_per_s": 5.0})["beside"][1]
    assert (entry["interval_s"], entry["to_none"], entry["calls_ms"]) == (1.0, few.effect, [4.0, 8.0])


def test_the_table_shows_what_went_wrong() -> None:
    out = io.StringIO()
    results = [Beside(None, [Window(40.0, None)]), beside(0.1, 0.97, errors=("not leader",))]
    print_purge(results, {"calls_per_s": 5.0}, 100, Console(file=out, width=200))
    assert "every 0.1 s" in out.getvalue() and "-3.0 %" in out.getvalue()
    assert out.getvalue().rstrip().endswith("not leader")
