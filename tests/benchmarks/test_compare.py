"""The bars: what counts as reached, missed, and not to be counted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from benchmarks.compare import Comparison, compare, print_comparison
from benchmarks.report import (
    load_document,
    merge_documents,
    number,
    print_document,
    save_document,
    to_document,
)
from benchmarks.results import RowResult, Run
from benchmarks.rows import ROW_BY_NAME, ROWS

HEADER = {"cluster": "varve", "bootstrap": "localhost:1", "driver": "C", "runs": 3, "seconds": 5.0}


def document(errors: int = 0, row: str = "produce-1k-16k", **metrics: float) -> dict[str, Any]:
    return to_document(HEADER, [RowResult(ROW_BY_NAME[row], [Run(metrics, errors=errors)])])


def figure(comparisons: list[Comparison], metric: str) -> Comparison:
    return next(entry for entry in comparisons if entry.metric == metric)


def test_throughput_must_be_half_as_much_again_and_cpu_not_above() -> None:
    theirs = document(mb_per_s=40, cpu_ms_per_mb=50)
    ahead = compare(document(mb_per_s=60, cpu_ms_per_mb=50), theirs)
    assert figure(ahead, "mb_per_s").reached is True
    assert figure(ahead, "mb_per_s").ratio == 1.5
    assert figure(ahead, "cpu_ms_per_mb").reached is True
    behind = compare(document(mb_per_s=59, cpu_ms_per_mb=51), theirs)
    assert figure(behind, "mb_per_s").reached is False
    assert figure(behind, "cpu_ms_per_mb").reached is False


@pytest.mark.parametrize(("ours", "theirs"), [(1, 0), (0, 1)])
def test_a_row_with_errors_reaches_no_bar(ours: int, theirs: int) -> None:
    entries = compare(document(ours, mb_per_s=900), document(theirs, mb_per_s=1))
    assert figure(entries, "mb_per_s").reached is False
    assert not figure(entries, "mb_per_s").valid


def test_an_absolute_bar_needs_no_other_cluster() -> None:
    entries = compare(document(row="failover", longest_gap_ms=1999), {"rows": []})
    assert figure(entries, "longest_gap_ms").reached is True
    assert figure(entries, "kill_to_ack_ms").reached is None


def test_a_missing_figure_is_neither_reached_nor_missed() -> None:
    entries = compare(document(mb_per_s=60), document(mb_per_s=40))
    assert figure(entries, "cpu_ms_per_mb").reached is None


def test_a_rows_figure_is_the_median_of_its_runs_with_their_spread() -> None:
    runs = [Run({"mb_per_s": value}, {"1": {"memory_mb": value}}) for value in (10.0, 30.0, 20.0)]
    result = RowResult(ROW_BY_NAME["produce-1k-16k"], runs)
    assert result.median == {"mb_per_s": 20.0}
    assert result.spread == {"mb_per_s": 1.0}
    assert result.brokers == {"1": {"memory_mb": 20.0}}


def test_the_leaders_share_is_the_leaders_whichever_node_leads() -> None:
    first = Run(
        {},
        {"1": {"cpu_ms_per_mb": 9.0}, "2": {"cpu_ms_per_mb": 1.0}, "3": {"cpu_ms_per_mb": 3.0}},
        leader="1",
    )
    second = Run(
        {},
        {"1": {"cpu_ms_per_mb": 4.0}, "2": {"cpu_ms_per_mb": 11.0}, "3": {"cpu_ms_per_mb": 4.0}},
        leader="2",
    )
    shares = RowResult(ROW_BY_NAME["produce-1k-16k"], [first, second]).brokers
    assert shares == {"leader": {"cpu_ms_per_mb": 10.0}, "follower": {"cpu_ms_per_mb": 3.0}}


def test_a_saved_file_is_filled_in_parts(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    save_document(path, document(row="latency-1", requests_per_s=1))
    merged = merge_documents(load_document(path), document(mb_per_s=2))
    assert [row["row"] for row in merged["rows"]] == ["produce-1k-16k", "latency-1"]
    path.write_text("{}")
    with pytest.raises(ValueError, match="not a result"):
        load_document(path)


def test_the_tables_name_errors_and_every_row() -> None:
    out = Console(record=True, width=160)
    results = [
        RowResult(row, [Run(dict.fromkeys(row.columns, 1234.5), errors=int(row.name == "idle"))])
        for row in ROWS
    ]
    print_document(to_document(HEADER, results), out)
    print_comparison(
        compare(to_document(HEADER, results), to_document(HEADER, results)), ("varve", "kafka"), out
    )
    text = out.export_text()
    assert all(text.count(row.title) == 2 for row in ROWS)
    assert "1 INVALID" in text
    assert "errors: INVALID" in text


@pytest.mark.parametrize(
    ("value", "shown"), [(None, "-"), (12345.6, "12,346"), (123.4, "123"), (1.234, "1.23")]
)
def test_figures_show_what_counts(value: float | None, shown: str) -> None:
    assert number(value) == shown
