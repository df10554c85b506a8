"""`sweep.json`: what an experiment hands over to be shown, as tables and plots. README.md has the format."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from pipeline.errors import PipelineError

SWEEP = "sweep.json"
_FORMAT = 1
_SCALES = ("linear", "log", "category")

Cell = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    unit: str


@dataclass(frozen=True, slots=True)
class Table:
    title: str
    text: str
    columns: list[Column]
    rows: list[list[Cell]]


@dataclass(frozen=True, slots=True)
class Axis:
    name: str
    unit: str
    scale: str
    """`linear`, `log`, or (x only) `category`."""


@dataclass(frozen=True, slots=True)
class Series:
    name: str
    points: list[tuple[float | str, float]]
    """The first is a name where the axis has categories."""
    is_model: bool
    """Computed rather than measured."""


@dataclass(frozen=True, slots=True)
class Plot:
    title: str
    text: str
    x: Axis
    y: Axis
    series: list[Series]


@dataclass(frozen=True, slots=True)
class Sweep:
    title: str
    text: str
    tables: list[Table]
    plots: list[Plot]


def parse_sweep(content: object, where: str) -> Sweep:
    """Raises PipelineError, which names the place, of anything but the format."""
    root = _Node(content, where)
    if (version := root.get("format").value) != _FORMAT:
        raise PipelineError(
            f"{where}: format is {version!r}; this report reads {_FORMAT} (see pipeline/report/README.md)"
        )
    return Sweep(
        root.get("title").text(),
        root.optional_text("text"),
        [_table(node) for node in root.items("tables")],
        [_plot(node) for node in root.items("plots")],
    )


def _table(node: _Node) -> Table:
    columns = [Column(c.get("name").text(), c.optional_text("unit")) for c in node.items("columns")]
    rows = [[cell.cell() for cell in row.items()] for row in node.items("rows")]
    for index, row in enumerate(rows):
        if len(row) != len(columns):
            raise PipelineError(f"{node.where}.rows[{index}]: {len(row)} cells for {len(columns)} columns")
    return Table(node.get("title").text(), node.optional_text("text"), columns, rows)


def _plot(node: _Node) -> Plot:
    x, y = (_axis(node.get(name)) for name in ("x", "y"))
    if y.scale == "category":
        raise PipelineError(f"{node.where}.y.scale: only x can have categories")
    return Plot(
        node.get("title").text(),
        node.optional_text("text"),
        x,
        y,
        [_series(series, x.scale == "category") for series in node.items("series")],
    )


def _axis(node: _Node) -> Axis:
    scale = node.optional_text("scale") or "linear"
    if scale not in _SCALES:
        raise PipelineError(f"{node.where}.scale: {scale!r} is none of {', '.join(_SCALES)}")
    return Axis(node.get("name").text(), node.optional_text("unit"), scale)


def _series(node: _Node, has_categories: bool) -> Series:
    points: list[tuple[float | str, float]] = []
    for point in node.items("points"):
        both = point.items()
        if len(both) != 2:
            raise PipelineError(f"{point.where}: a point is [x, y]")
        points.append((both[0].text() if has_categories else both[0].number(), both[1].number()))
    return Series(node.get("name").text(), points, node.optional("model", False) is True)


@dataclass(frozen=True, slots=True)
class _Node:
    """A value of a JSON document, and where it stands in it."""

    value: Any
    where: str

    def get(self, name: str) -> _Node:
        value = self._object()
        if name not in value:
            raise PipelineError(f"{self.where}: {name!r} is missing")
        return _Node(value[name], f"{self.where}.{name}")

    def optional(self, name: str, default: object) -> object:
        return self._object().get(name, default)

    def optional_text(self, name: str) -> str:
        return self.get(name).text() if name in self._object() else ""

    def items(self, name: str | None = None) -> list[_Node]:
        """Of this list, or of the one with this name, which may be missing."""
        if name is not None:
            return self.get(name).items() if name in self._object() else []
        if not isinstance(self.value, list):
            raise PipelineError(f"{self.where}: not a list")
        return [_Node(item, f"{self.where}[{index}]") for index, item in enumerate(self.value)]

    def text(self) -> str:
        if not isinstance(self.value, str):
            raise PipelineError(f"{self.where}: not a text")
        return self.value

    def number(self) -> float:
        if isinstance(self.value, bool) or not isinstance(self.value, int | float):
            raise PipelineError(f"{self.where}: not a number")
        if not math.isfinite(self.value):
            raise PipelineError(f"{self.where}: not a finite number")
        return self.value

    def cell(self) -> Cell:
        if self.value is None or isinstance(self.value, str | int | float):
            return self.value
        raise PipelineError(f"{self.where}: a cell is a text, a number, true, false or null")

    def _object(self) -> dict[str, Any]:
        if not isinstance(self.value, dict):
            raise PipelineError(f"{self.where}: not an object")
        return self.value
