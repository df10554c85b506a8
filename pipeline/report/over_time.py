"""The sections that are plots of a load: throughput and latency over time, and latency by percentile."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hdrh.histogram import HdrHistogram

from pipeline.report import figures
from pipeline.report.blocks import NOTHING, Pictures, folded, label, legend, paragraph, section, table
from pipeline.report.markup import Html, element, join
from pipeline.report.plot import BESIDE, Band, Chart, Line, Strip
from pipeline.report.run import Run
from pipeline.report.scales import Linear, LogMilliseconds, Nines, Seconds, clock, figure, with_unit

# The shades of a cell tell little where there are more rows than this.
_MOST_STRIP_ROWS = 24
_X_NAME = "time since the first record"


def over_time(runs: Sequence[Run], pictures: Pictures) -> Html | None:
    """Throughput and latency by the same axis of time, with what befell the cluster."""
    seconds = max(figures.seconds_of(run) for run in runs)
    if seconds == 0:
        return None
    bin_s = figures.bin_seconds(seconds)
    # An event may come after the last figure, when nothing was acknowledged any more.
    last_event = max((event.at_s for run in runs for event in figures.events(run)), default=0.0)
    x = Seconds(0, max(seconds, last_event))
    befell = _befell(runs, x.high)
    parts = [_throughput(runs, bin_s, x, pictures), befell, _latency(runs, bin_s, x, pictures)]
    return join(*parts)


def _throughput(runs: Sequence[Run], bin_s: int, x: Seconds, pictures: Pictures) -> Html | None:
    all_partitions = [figures.throughput_over_time(run, bin_s) for run in runs]
    totals = [figures.total(partitions) if partitions else [] for partitions in all_partitions]
    if not any(totals):
        return None
    goals = [(run.config.get("spec") or {}).get("rate_per_s") for run in runs]
    y = Linear.over(
        [value or 0 for points in totals for _, value in points] + [goal for goal in goals if goal]
    )
    charts: list[Chart] = []
    for run, points, goal in zip(runs, totals, goals, strict=True):
        lines = [Line("acknowledged" if run.stream is None else "came out", points, "s1", "steps")]
        if goal:
            lines.append(Line("asked for", [(0, goal), (x.high, goal)], "goal"))
        charts.append(
            Chart(
                label(run, runs) if len(runs) > 1 else "Throughput over time",
                _described("Acknowledged records per second", points, "records/s"),
                x,
                y,
                _X_NAME,
                "records/s",
                lines,
                figures.events(run),
                _gap_bands(run),
            )
        )
    return section(
        "Throughput",
        paragraph(_gap_sentence(runs), "lead"),
        legend([line for chart in charts for line in chart.lines]),
        element(
            "figure", None, pictures.plot(charts), _partition_strips(runs, all_partitions, bin_s, x, pictures)
        ),
        folded(
            "The figures of this plot",
            _time_table(
                "Acknowledged records per second", runs, [[points] for points in totals], [""], x.high
            ),
        ),
    )


def _partition_strips(
    runs: Sequence[Run],
    all_partitions: Sequence[dict[int, list[figures.Point]]],
    bin_s: int,
    x: Seconds,
    pictures: Pictures,
) -> Html | None:
    """Which partition acknowledged when: a fail-over is a hole in one row."""
    if not all(1 < len(partitions) <= _MOST_STRIP_ROWS for partitions in all_partitions):
        return None
    greatest = max(
        value or 0 for partitions in all_partitions for points in partitions.values() for _, value in points
    )
    strips = [
        Strip(
            label(run, runs) if len(runs) > 1 else "Throughput of each partition over time",
            f"One row for each of {len(partitions)} partitions, shaded by what it acknowledged.",
            x,
            [(f"p {partition}", points) for partition, points in partitions.items()],
            bin_s,
            greatest,
            figures.events(run),
        )
        for run, partitions in zip(runs, all_partitions, strict=True)
    ]
    most = f"{figure(greatest)} records/s"
    caption = (
        f"By partition: the stronger the colour, the more it acknowledged, up to {most}; empty is nothing."
    )
    return join(pictures.plot(strips), element("figcaption", None, caption))


def _latency(runs: Sequence[Run], bin_s: int, x: Seconds, pictures: Pictures) -> Html | None:
    series = [figures.latency_over_time(run, bin_s) for run in runs]
    known = [
        value
        for one in series
        for points in (one.p50, one.p99, one.max)
        for _, value in points
        if value is not None
    ]
    if not known:
        return None
    y = LogMilliseconds.over(known)
    charts = [
        Chart(
            label(run, runs) if len(runs) > 1 else "Latency over time",
            _described("The 99th percentile of latency", one.p99, "ms"),
            x,
            y,
            _X_NAME,
            "latency",
            [Line("max", one.max, "quiet"), Line("p99", one.p99, "s2"), Line("p50", one.p50, "s1")],
            figures.events(run),
            _gap_bands(run),
        )
        for run, one in zip(runs, series, strict=True)
    ]
    each = "second" if bin_s == 1 else f"{bin_s} s"
    return section(
        "Latency over time",
        paragraph(
            f"Of the records that were meant to be sent in each {each}, from then to {_arrival(runs)}.",
            "lead",
        ),
        legend(charts[0].lines[::-1]),
        element("figure", None, pictures.plot(charts)),
        folded(
            "The figures of this plot",
            _time_table(
                "Latency in ms",
                runs,
                [[one.p50, one.p99, one.max] for one in series],
                ["p50", "p99", "max"],
                x.high,
            ),
        ),
    )


def _arrival(runs: Sequence[Run]) -> str:
    if all(run.stream is not None for run in runs):
        return "the moment at which what became of them was in the sink topic"
    return "the acknowledgement"


def percentiles(runs: Sequence[Run], pictures: Pictures) -> Html | None:
    """The curve and its table; of two runs both curves in one plot."""
    known = [(run, *figures.overall(run)) for run in runs if run.latency]
    curves = [(run, figures.quantile_curve(histogram)) for run, histogram, _ in known]
    if not any(curve for _, curve in curves):
        return None
    lines = [Line(label(run, runs), curve, f"s{1 + list(runs).index(run)}") for run, curve in curves]
    highest = max(curve[-1][0] for _, curve in curves if curve)
    nines = -math.log10(1 - highest)
    chart = Chart(
        "Latency by percentile",
        "; ".join(
            f"{line.name}: {_percentiles_in_words(h)}" for line, (_, h, _) in zip(lines, known, strict=True)
        ),
        Nines(nines),
        LogMilliseconds.over([ms for _, curve in curves for _, ms in curve]),
        "share of the records that took no longer",
        "latency",
        lines,
    )
    rows: dict[str, list[str]] = {}
    for index, (_, histogram, _) in enumerate(known):
        for name, ms in figures.percentile_rows(histogram):
            rows.setdefault(name, [""] * len(known))[index] = figure(ms)
    ordered = sorted(rows.items(), key=lambda row: 101.0 if row[0] == "max" else float(row[0][1:]))
    left_out = any(is_left_out for _, _, is_left_out in known)
    header = ["percentile", *(f"{label(run, runs)}, ms" if len(runs) > 1 else "ms" for run, _, _ in known)]
    return section(
        "Latency by percentile",
        paragraph(
            "Each further nine takes the same room." + (" The warm-up is left out." if left_out else ""),
            "lead",
        ),
        legend(lines) if len(runs) > 1 else None,
        element(
            "figure",
            {"class": "beside"},
            element("div", None, pictures.plot([chart], BESIDE)),
            table("Latency by percentile", header, [[name, *cells] for name, cells in ordered]),
        ),
    )


def _befell(runs: Sequence[Run], span_s: float) -> Html | None:
    """The numbers of the flags in words."""
    lists: list[Html] = []
    for run in runs:
        items = [
            element(
                "li",
                None,
                element("span", {"class": "number-flag"}, str(event.number)),
                element("span", {"class": "when"}, clock(round(event.at_s, 1), span_s)),
                element("span", None, event.what),
            )
            for event in figures.events(run)
        ]
        if items:
            name = element("p", {"class": "panel-name"}, label(run, runs)) if len(runs) > 1 else None
            lists.append(element("div", None, name, element("ol", {"class": "events"}, *items)))
    if not lists:
        return None
    return section("What befell the cluster", element("div", {"class": "panels"}, *lists))


def _gap_bands(run: Run) -> list[Band]:
    if run.start_us is None:
        return []
    begins = [((gap["from_us"] - run.start_us) / 1e6, gap["gap_ms"] / 1000) for gap in figures.gaps(run)]
    return [Band(begin, begin + duration_s) for begin, duration_s in begins]


def _gap_sentence(runs: Sequence[Run]) -> str | None:
    said = []
    for run in runs:
        of_run = f"{label(run, runs)}: " if len(runs) > 1 else ""
        parts = [
            f"{' '.join(with_unit(gap['gap_ms'], 'ms'))} {when} (partition {gap['partition']})"
            for when, gap in zip(
                ("in the whole run", "from the first fault on"), figures.gaps(run), strict=False
            )
        ]
        if parts:
            said.append(of_run + ", ".join(parts))
    did = "got" if all(run.stream is not None for run in runs) else "acknowledged"
    return f"Longest time in which a partition {did} nothing, shaded: {'; '.join(said)}." if said else None


def _described(what: str, points: Sequence[figures.Point], unit: str) -> str:
    """What a reader of the plot would see of a line."""
    known = [(value, at) for at, value in points if value is not None]
    if not known:
        return f"{what}: nothing known."
    (low, low_at), (high, high_at) = min(known), max(known)
    least, most = (
        f"{figure(low)} {unit} at {figure(low_at)} s",
        f"{figure(high)} {unit} at {figure(high_at)} s",
    )
    return f"{what}: least {least}, most {most}."


def _percentiles_in_words(histogram: HdrHistogram) -> str:
    return ", ".join(f"{name} {figure(ms)} ms" for name, ms in figures.percentile_rows(histogram))


def _time_table(
    caption: str,
    runs: Sequence[Run],
    series: Sequence[Sequence[Sequence[figures.Point]]],
    names: Sequence[str],
    span_s: float,
) -> Html:
    """`series`: for each run its lines, each with a name; all lines have their points at the same times."""
    header, columns = ["time"], []
    for run, lines in zip(runs, series, strict=True):
        for name, points in zip(names, lines, strict=True):
            of_run = label(run, runs) if len(runs) > 1 else ""
            header.append(" ".join(part for part in (of_run, name) if part) or "records/s")
            columns.append(dict(points))
    times = sorted({at for column in columns for at in column})
    rows = []
    for at in times:
        values = (column.get(at) for column in columns)
        rows.append([clock(at, span_s), *(NOTHING if value is None else figure(value) for value in values)])
    return table(caption, header, rows)
