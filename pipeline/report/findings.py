"""What an experiment hands over, made and written as `sweep.json`; `sweep.py` reads it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline.report.sweep import SWEEP, Axis, Cell, Column, Plot, Series, Sweep, Table
from pipeline.run_files import write_json


@dataclass(slots=True)
class TableOf:
    """A table that grows by rows. A column is a name, or a name and its unit: `("latency", "ms")`."""

    title: str
    columns: Sequence[str | tuple[str, str]]
    text: str = ""
    rows: list[list[Cell]] = field(default_factory=list)

    def add(self, *cells: Cell) -> None:
        assert len(cells) == len(self.columns), "a row has one cell for each column"
        self.rows.append([round(cell, 3) if isinstance(cell, float) else cell for cell in cells])

    def table(self) -> Table:
        columns = [Column(*((one, "") if isinstance(one, str) else one)) for one in self.columns]
        return Table(self.title, self.text, columns, self.rows)


def plot_of(title: str, x: Axis, y: Axis, *series: Series, text: str = "") -> Plot:
    return Plot(title, text, x, y, list(series))


def write_findings(run: Path, findings: Sweep) -> None:
    """As `sweep.json` of the run's folder."""
    write_json(run / SWEEP, to_json(findings))


def to_json(findings: Sweep) -> dict[str, Any]:
    """In the form of pipeline/report/README.md."""
    return {
        "format": 1,
        "title": findings.title,
        "text": findings.text,
        "tables": [
            {
                "title": table.title,
                "text": table.text,
                "columns": [{"name": column.name, "unit": column.unit} for column in table.columns],
                "rows": table.rows,
            }
            for table in findings.tables
        ],
        "plots": [
            {
                "title": plot.title,
                "text": plot.text,
                "x": _axis(plot.x),
                "y": _axis(plot.y),
                "series": [
                    {"name": series.name, "model": series.is_model, "points": series.points}
                    for series in plot.series
                ],
            }
            for plot in findings.plots
        ],
    }


def _axis(axis: Axis) -> dict[str, str]:
    return {"name": axis.name, "unit": axis.unit, "scale": axis.scale}
