"""Two builds of Varve, measured in turn: what has changed from one to the other, and whether it is worse."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.report import METRIC_TITLES, number, percent
from benchmarks.results import range_of_median
from benchmarks.rows import HIGHER_IS_BETTER, ROW_BY_NAME, STEADY

TOLERANCE = 0.05
"""A change for the worse up to this share is not held against a build."""


@dataclass(frozen=True)
class Change:
    """One figure of one row in two builds."""

    row: str
    metric: str
    ours: float | None
    """The median of our runs; None where it was not measured."""
    theirs: float | None
    ratios: tuple[float, ...]
    """Of each round: our figure by theirs."""
    is_valid: bool
    """False where a run of either build had errors."""

    @property
    def ratio(self) -> float | None:
        """The median of the rounds: the two runs of a round met the same machine."""
        return statistics.median(self.ratios) if self.ratios else None

    @property
    def is_worse(self) -> bool:
        """By more than TOLERANCE, in a figure by which builds are judged."""
        if self.ratio is None or self.metric not in STEADY:
            return False
        return self.ratio < 1 - TOLERANCE if self.metric in HIGHER_IS_BETTER else self.ratio > 1 + TOLERANCE


def changes(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[Change]:
    """Every column of every row that both documents have, whose runs were made in turn."""
    their_rows = {row["row"]: row for row in theirs["rows"]}
    found = []
    for our_row in ours["rows"]:
        their_row = their_rows.get(our_row["row"])
        if their_row is None:
            continue
        is_valid = not (our_row["errors"] or their_row["errors"])
        for metric in ROW_BY_NAME[our_row["row"]].columns:
            pairs = [
                (mine["metrics"].get(metric), yours["metrics"].get(metric))
                for mine, yours in zip(our_row["runs"], their_row["runs"], strict=True)
            ]
            found.append(
                Change(
                    our_row["row"],
                    metric,
                    our_row["median"].get(metric),
                    their_row["median"].get(metric),
                    tuple(mine / yours for mine, yours in pairs if mine is not None and yours),
                    is_valid,
                )
            )
    return found


def print_changes(found: list[Change], names: tuple[str, str], out: Console) -> None:
    """A line per figure; what is worse is marked."""
    table = Table("row", "figure", *names, "change", "95 %", "", box=box.SIMPLE)
    for index in range(2, 6):
        table.columns[index].justify = "right"
    shown_row = ""
    for change in found:
        title = ROW_BY_NAME[change.row].title if change.row != shown_row else ""
        if shown_row and change.row != shown_row:
            table.add_section()
        shown_row = change.row
        verdict = "[bold red]WORSE[/]" if change.is_worse else ""
        if not change.is_valid:
            verdict = "[bold red]errors: INVALID[/]"
        table.add_row(
            title,
            METRIC_TITLES[change.metric],
            number(change.ours),
            number(change.theirs),
            percent(change.ratio) if change.ratio is not None else "-",
            " .. ".join(percent(bound) for bound in range_of_median(change.ratios)) if change.ratios else "-",
            verdict,
        )
    out.print(table)
