"""Two builds measured in turn: what is called worse, and whose code was measured."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from benchmarks import schedule
from benchmarks.builds import Change, changes, print_changes
from benchmarks.cluster import CHECKOUT, Cluster, ClusterError, VarveCluster
from benchmarks.driver import Driver
from benchmarks.measure import Bench
from benchmarks.report import to_document
from benchmarks.results import RowResult, Run, range_of_median
from benchmarks.rows import HIGHER_IS_BETTER, ROW_BY_NAME, ROWS, STEADY, Row

HEADER = {"cluster": "varve", "bootstrap": "localhost:1", "driver": "C", "runs": 3, "seconds": 5.0}


def document(metric: str, *values: float, errors: int = 0, row: str = "produce-1k-16k") -> dict[str, Any]:
    runs = [Run({metric: value}, errors=errors) for value in values]
    return to_document(HEADER, [RowResult(ROW_BY_NAME[row], runs)])


def change_of(metric: str, ours: list[float], theirs: list[float], **options: Any) -> Change:
    found = changes(document(metric, *ours, **options), document(metric, *theirs))
    return next(change for change in found if change.metric == metric)


@pytest.mark.parametrize(
    ("metric", "ours", "is_worse"),
    [
        ("mb_per_s", 95.5, False),
        ("mb_per_s", 94.5, True),
        ("mb_per_s", 200, False),
        ("cpu_ms_per_mb", 104.5, False),
        ("cpu_ms_per_mb", 105.5, True),
        ("cpu_ms_per_mb", 50, False),
        ("request_p99_9_us", 300, False),  # a tail does not repeat
    ],
)
def test_worse_is_more_than_five_percent_in_the_wrong_direction(
    metric: str, ours: float, is_worse: bool
) -> None:
    assert change_of(metric, [ours], [100]).is_worse is is_worse


def test_each_run_is_compared_with_the_one_of_its_round() -> None:
    """The machine slows down to a half in the middle of the second round."""
    change = change_of("mb_per_s", [101, 50.5, 50.5], [100, 100, 50])
    assert (change.ours, change.theirs) == (50.5, 100)
    assert change.ratio == pytest.approx(1.01)
    assert not change.is_worse


def test_a_run_with_errors_makes_its_row_invalid() -> None:
    assert not change_of("mb_per_s", [100], [100], errors=1).is_valid
    failed = to_document(HEADER, [RowResult(ROW_BY_NAME["latency-1"], [Run({}, errors=1)])])
    found = changes(failed, document("record_p50_us", 500, row="latency-1"))
    assert all(change.ratio is None and not change.is_valid for change in found)


def test_every_row_has_a_figure_by_which_builds_are_judged() -> None:
    assert all(STEADY & set(row.columns) for row in ROWS)
    assert {column for row in ROWS for column in row.columns} >= STEADY | HIGHER_IS_BETTER


def test_the_table_marks_what_is_worse() -> None:
    out = io.StringIO()
    found = changes(document("mb_per_s", 90, 80, 70), document("mb_per_s", 100, 100, 100))
    print_changes(found, ("1234567", "e2b20fa"), Console(file=out, width=160))
    line = next(line for line in out.getvalue().splitlines() if "MB/s" in line)
    assert line.split()[-9:] == ["100", "-20.0", "%", "-30.0", "%", "..", "-10.0", "%", "WORSE"]


def test_the_range_of_a_median_grows_narrow_with_many_values() -> None:
    assert range_of_median([3, 1, 2]) == (1, 3)
    assert range_of_median(range(100)) == (39, 60)


def test_rounds_begin_with_each_side_in_turn_and_the_first_does_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    order: list[str] = []

    class Recorded(Bench):
        def measure(self, row: Row, runs: int) -> RowResult:
            order.append(f"{self.cluster.name} {row.name}")
            return RowResult(row, [Run({"first_ack_s": float(len(order))})] * runs)

    class Side:
        def __init__(self, name: str) -> None:
            self.name = self.bootstrap = name
            self.checkout = CHECKOUT

    monkeypatch.setattr(schedule, "Bench", Recorded)
    monkeypatch.setattr(schedule, "find_driver", lambda _python: Driver(("none",), "none", {}))
    sides: list[Cluster] = [Side("a"), Side("b")]  # type: ignore[list-item]
    documents = schedule.measure_in_turn(sides, [ROW_BY_NAME["startup"]], 2, 0.1, False)
    assert [entry[0] for entry in order] == ["b", "a", "a", "b", "b", "a"]
    measured = [[run["metrics"]["first_ack_s"] for run in side["rows"][0]["runs"]] for side in documents]
    assert measured == [[3, 6], [4, 5]]


def test_another_checkout_must_run_its_own_code(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match=r"no \.venv"):
        VarveCluster.of_checkout(tmp_path)
    (tmp_path / ".venv").symlink_to(sys.prefix)
    with pytest.raises(ClusterError, match="not that checkout's code"):
        VarveCluster.of_checkout(tmp_path)


def test_another_checkout_runs_beside_this_one() -> None:
    """Whose code and whose ports, where the other checkout is this one once more."""
    if Path(sys.prefix) != CHECKOUT / ".venv":
        pytest.skip("the tests run in an environment outside of the checkout")
    here, there = VarveCluster(), VarveCluster.of_checkout(CHECKOUT)
    assert there.checkout == here.checkout == CHECKOUT
    assert not set(here.bootstrap.split(",")) & set(there.bootstrap.split(","))
