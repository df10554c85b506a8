"""The section of an experiment: what its `sweep.json` holds, beside that of another run where there is one."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.report.blocks import NOTHING, Pictures, folded, label, legend, paragraph, section, table
from pipeline.report.markup import Html, element, join
from pipeline.report.plot import Chart, Line
from pipeline.report.run import Run
from pipeline.report.scales import Categories, Linear, Log, Scale, figure
from pipeline.report.sweep import Axis, Plot, Table


def experiment(runs: Sequence[Run], pictures: Pictures) -> Html | None:
    """Plots of one title in both runs share their axes; tables stand below each other."""
    known = [(run, run.sweep) for run in runs if run.sweep is not None]
    if not known:
        return None
    parts: list[Html | None] = []
    for run, sweep in known:
        # A report of nothing else has the title already.
        if len(runs) > 1 or run.config:
            parts.append(
                element("h3", None, sweep.title if len(runs) == 1 else f"{label(run, runs)}: {sweep.title}")
            )
        parts.append(paragraph(sweep.text, "seen"))
    titles = dict.fromkeys(plot.title for _, sweep in known for plot in sweep.plots)
    for title in titles:
        same = [(run, plot) for run, sweep in known for plot in sweep.plots if plot.title == title]
        parts.append(_sweep_plots(title, same, runs, pictures))
    for run, sweep in known:
        parts += [_sweep_table(one, label(run, runs) if len(runs) > 1 else None) for one in sweep.tables]
    return section("Experiment", *parts)


def _sweep_plots(
    title: str, plots: Sequence[tuple[Run, Plot]], runs: Sequence[Run], pictures: Pictures
) -> Html:
    every_point = [point for _, plot in plots for series in plot.series for point in series.points]
    x_axis, y_axis = plots[0][1].x, plots[0][1].y
    names = list(dict.fromkeys(point[0] for point in every_point if isinstance(point[0], str)))
    x = _scale(x_axis, [point[0] for point in every_point if not isinstance(point[0], str)], names)
    y = _scale(y_axis, [point[1] for point in every_point], [])
    charts = [
        Chart(
            label(run, runs) if len(plots) > 1 else plot.title,
            plot.text or f"{y_axis.name} by {x_axis.name}, {len(plot.series)} series.",
            x,
            y,
            _named(x_axis),
            _named(y_axis),
            [
                Line(
                    series.name,
                    [(names.index(at) if isinstance(at, str) else at, value) for at, value in series.points],
                    f"s{index % 7 + 1}" + (" model" if series.is_model else ""),
                    "dots" if names else "line" if series.is_model else "dotted line",
                )
                for index, series in enumerate(plot.series)
            ],
        )
        for run, plot in plots
    ]
    rows = [
        [
            figure(at) if not isinstance(at, str) else at,
            series.name,
            *([label(run, runs)] if len(plots) > 1 else []),
            figure(value),
        ]
        for run, plot in plots
        for series in plot.series
        for at, value in series.points
    ]
    header = [_named(x_axis), "series", *(["run"] if len(plots) > 1 else []), _named(y_axis)]
    return join(
        element("h3", None, title),
        paragraph(plots[0][1].text, "lead"),
        legend([line for chart in charts for line in chart.lines]),
        element("figure", None, pictures.plot(charts)),
        folded("The figures of this plot", table(title, header, rows, len(header) - 1)),
    )


def _scale(axis: Axis, values: Sequence[float], names: Sequence[str]) -> Scale:
    if axis.scale == "category":
        return Categories(names or [""])
    return Log.over(values) if axis.scale == "log" else Linear.over(values)


def _sweep_table(one: Table, run: str | None) -> Html:
    header = [f"{column.name}, {column.unit}" if column.unit else column.name for column in one.columns]
    rows = [[_cell(cell) for cell in row] for row in one.rows]
    title = f"{run}: {one.title}" if run else one.title
    numbers_from = next(
        (c for c in range(len(header)) if all(isinstance(row[c], int | float) for row in one.rows)), 99
    )
    return join(
        element("h3", None, title),
        paragraph(one.text, "lead"),
        table(title, header, rows, max(numbers_from, 1)),
    )


def _cell(cell: object) -> str:
    if cell is None:
        return NOTHING
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    return figure(cell) if isinstance(cell, int | float) else str(cell)


def _named(axis: Axis) -> str:
    named = f"{axis.name}, {axis.unit}" if axis.unit else axis.name
    return f"{named} (logarithmic)" if axis.scale == "log" else named
