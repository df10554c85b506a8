"""Our rows beside another cluster's, with the ratio and whether the bar is reached."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.report import METRIC_TITLES, number
from benchmarks.rows import ROW_BY_NAME


@dataclass(frozen=True)
class Comparison:
    """One figure of one row. `reached` is None without a bar, or where a figure is missing."""

    row: str
    metric: str
    ours: float | None
    theirs: float | None
    bar: str
    reached: bool | None
    valid: bool

    @property
    def ratio(self) -> float | None:
        return self.ours / self.theirs if self.ours is not None and self.theirs else None


def compare(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[Comparison]:
    """Every column of every row that either has. A row with errors reaches no bar."""
    our_rows = {row["row"]: row for row in ours["rows"]}
    their_rows = {row["row"]: row for row in theirs["rows"]}
    comparisons = []
    for name, row in ROW_BY_NAME.items():
        if name not in our_rows and name not in their_rows:
            continue
        pair = [rows.get(name, {"median": {}, "errors": 0}) for rows in (our_rows, their_rows)]
        valid = not any(side["errors"] for side in pair)
        bars = {bar.metric: bar for bar in row.bars}
        for metric in row.columns:
            our_figure, their_figure = (side["median"].get(metric) for side in pair)
            bar = bars.get(metric)
            reached = bar.holds(our_figure, their_figure) if bar and our_figure is not None else None
            comparisons.append(
                Comparison(
                    name,
                    metric,
                    our_figure,
                    their_figure,
                    str(bar) if bar else "",
                    reached and valid if bar else None,
                    valid,
                )
            )
    return comparisons


def print_comparison(comparisons: list[Comparison], names: tuple[str, str], out: Console) -> None:
    table = Table("row", "figure", *names, "ratio", "bar", "", box=box.SIMPLE)
    for index in range(2, 6):
        table.columns[index].justify = "right"
    shown_row = ""
    for entry in comparisons:
        title = ROW_BY_NAME[entry.row].title if entry.row != shown_row else ""
        if shown_row and entry.row != shown_row:
            table.add_section()
        shown_row = entry.row
        verdict = {True: "[green]reached[/]", False: "[bold red]MISSED[/]", None: ""}[entry.reached]
        if not entry.valid:
            verdict = "[bold red]errors: INVALID[/]"
        ratio = f"{entry.ratio:.2f}" if entry.ratio is not None else "-"
        figures = (number(entry.ours), number(entry.theirs))
        table.add_row(title, METRIC_TITLES[entry.metric], *figures, ratio, entry.bar, verdict)
    out.print(table)
