"""What `scripts/bench purge` makes of its runs."""

from __future__ import annotations

import io

import pytest
from benchmark.measure import Run
from benchmark.purge import Beside, Purges, document_of, print_purge
from rich.console import Console


def beside(interval_s: float | None, *mb_per_s: float, errors: tuple[str, ...] = ()) -> Beside:
    runs = [Run({"mb_per_s": value, "cpu_ms_per_mb": 10.0}) for value in mb_per_s]
    return Beside(interval_s, runs, [Purges([4.0, 8.0], list(errors)) for _ in runs if interval_s])


def test_an_effect_is_that_of_rounds_and_not_of_the_machine() -> None:
    """It got slower from round to round; within each round the purge cost a tenth."""
    without, every_second = beside(None, 100, 50, 20), beside(1.0, 90, 45, 18)
    assert every_second.effect(without) == pytest.approx(0.9)
    assert without.effect(without) == 1.0
    entry = document_of([without, every_second], {"calls_per_s": 5.0})["beside"][1]
    assert (entry["interval_s"], entry["mb_per_s"], len(entry["calls_ms"])) == (1.0, 45, 6)


def test_the_table_shows_what_went_wrong() -> None:
    out = io.StringIO()
    results = [beside(None, 100.0), beside(0.1, 97.0, errors=("not leader",))]
    print_purge(results, {"calls_per_s": 5.0}, 100, Console(file=out, width=200))
    assert "every 0.1 s" in out.getvalue() and "-3.0 %" in out.getvalue()
    assert out.getvalue().rstrip().endswith("not leader")
