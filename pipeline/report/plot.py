"""Plots as inline SVG: axes, lines, marks of events, and rows of shades. Colours and strokes are the style sheet's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from pipeline.report.figures import Event
from pipeline.report.markup import Html, element, join, number
from pipeline.report.scales import Scale

_LEFT, _RIGHT, _BOTTOM = 52.0, 14.0, 40.0
_TOP = 26.0
# A row of flags, and how near two of them may come in one row.
_FLAG_ROW, _FLAG_RADIUS = 19.0, 8.0
_MOST_FLAG_ROWS = 3
# Width of a character at the size of the labels, on the safe side.
_CHARACTER = 6.4
_SHADES = 6


@dataclass(frozen=True, slots=True)
class Size:
    width: float
    height: float
    x_ticks: int
    y_ticks: int
    labels_events: bool
    """Whether there is room for words beside the flags of events, and not only for their numbers."""


WIDE = Size(880, 290, 12, 6, True)
BESIDE = Size(610, 310, 8, 6, True)
NARROW = Size(360, 240, 5, 5, False)


@dataclass(frozen=True, slots=True)
class Line:
    name: str
    points: Sequence[tuple[float, float | None]]
    kind: str
    """The class that decides its colour and stroke: `s1` to `s7`, `quiet` or `goal`."""
    shape: Literal["line", "steps", "dots", "dotted line"] = "line"
    """`steps` holds a value until the next point, with the area below it filled."""


@dataclass(frozen=True, slots=True)
class Band:
    """A stretch of the x axis that is shaded."""

    begin: float
    end: float


@dataclass(frozen=True, slots=True)
class Chart:
    title: str
    description: str
    """What it shows, in words, for those who do not see it."""
    x: Scale
    y: Scale
    x_name: str
    y_name: str
    lines: Sequence[Line]
    events: Sequence[Event] = ()
    bands: Sequence[Band] = ()


@dataclass(frozen=True, slots=True)
class Strip:
    """Rows below a chart of the same axis of time, each cell shaded by its share of the greatest value."""

    title: str
    description: str
    x: Scale
    rows: Sequence[tuple[str, Sequence[tuple[float, float | None]]]]
    cell_width: float
    """In units of x."""
    greatest: float
    events: Sequence[Event] = ()


@dataclass(frozen=True, slots=True)
class _Flag:
    event: Event
    row: int
    """0 is the one next to the plot."""
    has_words: bool


@dataclass(slots=True)
class _Frame:
    """The area between the axes, in the SVG's units."""

    size: Size
    top: float
    height: float
    x: Scale
    parts: list[Html] = field(default_factory=list)

    @property
    def bottom(self) -> float:
        return self.top + self.height

    @property
    def right(self) -> float:
        return self.size.width - _RIGHT

    def across(self, value: float) -> float:
        return _LEFT + self.x.place(value) * (self.right - _LEFT)

    def up(self, share: float) -> float:
        return self.bottom - share * self.height


def draw(chart: Chart, size: Size, identity: str) -> Html:
    """`identity` is unique in the page; the title and description are named by it."""
    flags = _flags(chart.events, chart.x, size)
    top = _TOP + _FLAG_ROW * (max((flag.row for flag in flags), default=-1) + 1)
    frame = _Frame(size, top, size.height - _BOTTOM - _TOP, chart.x)
    frame.parts.append(_text(2, 13, chart.y_name, "axis-name"))
    for band in chart.bands:
        begin, end = frame.across(band.begin), frame.across(band.end)
        frame.parts.append(_rectangle("band", begin, frame.top, max(end - begin, 2), frame.height))
    for tick in chart.y.ticks(size.y_ticks):
        y = frame.up(chart.y.place(tick.value))
        frame.parts.append(_segment("grid", _LEFT, y, frame.right, y))
        frame.parts.append(_text(_LEFT - 7, y + 4, tick.label, "tick end"))
    _draw_x_axis(frame, chart.x_name)
    for line in chart.lines:
        frame.parts.append(_line(frame, chart.y, line))
    _draw_flags(frame, flags)
    return _svg(frame, chart.title, chart.description, identity, _BOTTOM)


def draw_strip(strip: Strip, size: Size, identity: str) -> Html:
    row_height = 18.0 if len(strip.rows) <= 8 else 10.0
    frame = _Frame(size, 2.0, row_height * len(strip.rows), strip.x)
    for index, (name, points) in enumerate(strip.rows):
        y = frame.top + index * row_height
        if row_height > 12 or index % 2 == 0:
            frame.parts.append(_text(_LEFT - 7, y + row_height / 2 + 4, name, "tick end"))
        for begin, end, shade in _runs_of_shade(points, strip):
            left, right = frame.across(begin), min(frame.across(end), frame.right)
            if right > left:
                frame.parts.append(_rectangle(f"h{shade}", left, y + 1, right - left, row_height - 2))
    for event in strip.events:
        x = frame.across(event.at_s)
        frame.parts.append(_segment("mark", x, frame.top, x, frame.bottom))
    return _svg(frame, strip.title, strip.description, identity, 4.0)


def key(kind: str, shape: str = "line") -> Html:
    """The little picture of a line beside its name."""
    if shape == "steps":
        inner = join(_rectangle(f"area {kind}", 0, 1, 24, 9), _segment(f"line {kind}", 1, 1, 23, 1))
    else:
        inner = join(
            _segment(f"line {kind}", 0, 5, 24, 5) if "line" in shape else None,
            _marker(kind, 12, 5) if "dot" in shape else None,
        )
    return element("svg", {"class": "key", "viewBox": "0 0 24 10", "aria-hidden": "true"}, inner)


def _svg(frame: _Frame, title: str, description: str, identity: str, below: float) -> Html:
    height = frame.bottom + below
    return element(
        "svg",
        {
            "viewBox": f"0 0 {number(frame.size.width)} {number(height)}",
            "role": "img",
            "aria-labelledby": f"{identity}-t {identity}-d",
        },
        element("title", {"id": f"{identity}-t"}, title),
        element("desc", {"id": f"{identity}-d"}, description),
        *frame.parts,
    )


def _draw_x_axis(frame: _Frame, name: str) -> None:
    frame.parts.append(_segment("axis", _LEFT, frame.bottom, frame.right, frame.bottom))
    free_from = -math.inf
    for tick in frame.x.ticks(frame.size.x_ticks):
        x, half = frame.across(tick.value), len(tick.label) * _CHARACTER / 2
        # The picture's edge would cut it.
        is_last = x + half > frame.size.width
        begin = x - 2 * half if is_last else x - half
        if begin < free_from:
            continue
        free_from = begin + 2 * half + 4
        frame.parts.append(_segment("axis", x, frame.bottom, x, frame.bottom + 4))
        frame.parts.append(_text(x, frame.bottom + 17, tick.label, "tick end" if is_last else "tick middle"))
    frame.parts.append(_text(frame.right, frame.bottom + 34, name, "axis-name end"))


def _flags(events: Sequence[Event], x: Scale, size: Size) -> list[_Flag]:
    """A place for each event, so that neither flags nor words cover each other.

    Words are left out where they do not fit: the report has them in a list, too.
    """
    if size.labels_events and (flags := _placed(events, x, size, True)) is not None:
        return flags
    flags = _placed(events, x, size, False)
    assert flags is not None, "without words there is always a row"
    return flags


def _placed(events: Sequence[Event], x: Scale, size: Size, with_words: bool) -> list[_Flag] | None:
    ends = [-math.inf] * _MOST_FLAG_ROWS
    flags = []
    for event in events:
        at = _LEFT + x.place(event.at_s) * (size.width - _LEFT - _RIGHT)
        end = at + 2 * _FLAG_RADIUS + len(event.what) * _CHARACTER
        has_words = with_words and end <= size.width
        free = [row for row in range(_MOST_FLAG_ROWS) if at - _FLAG_RADIUS > ends[row]]
        if not free and with_words:
            return None
        row = free[0] if free else min(range(_MOST_FLAG_ROWS), key=ends.__getitem__)
        ends[row] = end if has_words else at + _FLAG_RADIUS + 2
        flags.append(_Flag(event, row, has_words))
    return flags


def _draw_flags(frame: _Frame, flags: Sequence[_Flag]) -> None:
    """The lines below, so that none of them crosses a word."""
    over: list[Html] = []
    for flag in flags:
        x = frame.across(flag.event.at_s)
        y = frame.top - 5 - _FLAG_RADIUS - flag.row * _FLAG_ROW
        frame.parts.append(_segment("mark", x, y + _FLAG_RADIUS, x, frame.bottom))
        if flag.has_words:
            over.append(_text(x + _FLAG_RADIUS + 4, y + 4, flag.event.what, "mark-name"))
        circle = element("circle", {"cx": x, "cy": y, "r": _FLAG_RADIUS})
        digit = _text(x, y + 3.8, str(flag.event.number), "middle")
        over.append(element("g", {"class": "flag"}, circle, digit))
    frame.parts += over


def _line(frame: _Frame, y: Scale, line: Line) -> Html:
    at = [
        (frame.across(x), None if value is None else frame.up(min(max(y.place(value), 0), 1)))
        for x, value in line.points
    ]
    if line.shape == "steps":
        return _steps(frame, line.kind, at)
    parts: list[Html] = []
    if "line" in line.shape:
        path, is_down = [], False
        for place_x, place_y in at:
            if place_y is not None:
                path.append(f"{'L' if is_down else 'M'}{number(place_x)} {number(place_y)}")
            is_down = place_y is not None
        # A point between two gaps has no line, and shows by its round end.
        path = [f"{p}h0" if p[0] == "M" else p for p in path]
        parts.append(element("path", {"class": f"line {line.kind}", "d": "".join(path)}))
    if "dot" in line.shape:
        parts += [_marker(line.kind, place_x, place_y) for place_x, place_y in at if place_y is not None]
    return join(*parts)


def _steps(frame: _Frame, kind: str, at: Sequence[tuple[float, float | None]]) -> Html:
    if not at:
        return Html("")
    last = frame.right if len(at) < 2 else min(2 * at[-1][0] - at[-2][0], frame.right)
    top = "".join(
        f"V{number(frame.bottom if y is None else y)}H{number(min(x, frame.right))}"
        for (_, y), (x, _) in zip(at, [*at[1:], (last, None)], strict=True)
    )
    begin = f"M{number(at[0][0])} {number(frame.bottom)}"
    return join(
        element("path", {"class": f"area {kind}", "d": f"{begin}{top}V{number(frame.bottom)}Z"}),
        element("path", {"class": f"line {kind}", "d": f"{begin}{top}V{number(frame.bottom)}"}),
    )


def _marker(kind: str, x: float, y: float) -> Html:
    """Each kind has a shape of its own, so that colour is not all that tells series apart."""
    outlines = {
        "s1": "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0Z",
        "s2": "M-3.6 -3.6H3.6V3.6H-3.6Z",
        "s3": "M0 -4.8L4.4 3.4H-4.4Z",
        "s4": "M0 -5L5 0L0 5L-5 0Z",
        "s5": "M0 4.8L4.4 -3.4H-4.4Z",
        "s6": "M-4 -1.4H-1.4V-4H1.4V-1.4H4V1.4H1.4V4H-1.4V1.4H-4Z",
        "s7": "M-4.6 -2.4H4.6V2.4H-4.6Z",
    }
    place = f"translate({number(x)} {number(y)})"
    return element(
        "path", {"class": f"dot {kind}", "transform": place, "d": outlines.get(kind, outlines["s1"])}
    )


def _runs_of_shade(
    points: Sequence[tuple[float, float | None]], strip: Strip
) -> list[tuple[float, float, int]]:
    """(begin, end, shade) with neighbours of one shade as one. Shade 0 is nothing at all."""
    runs: list[tuple[float, float, int]] = []
    for begin, value in points:
        share = (value or 0) / strip.greatest if strip.greatest else 0
        shade = 0 if not value else max(1, min(round(share * _SHADES), _SHADES))
        if runs and runs[-1][2] == shade:
            runs[-1] = (runs[-1][0], begin + strip.cell_width, shade)
        else:
            runs.append((begin, begin + strip.cell_width, shade))
    return runs


def _text(x: float, y: float, text: str, kind: str) -> Html:
    return element("text", {"x": x, "y": y, "class": kind}, text)


def _segment(kind: str, x1: float, y1: float, x2: float, y2: float) -> Html:
    return element("line", {"class": kind, "x1": x1, "y1": y1, "x2": x2, "y2": y2})


def _rectangle(kind: str, x: float, y: float, width: float, height: float) -> Html:
    return element("rect", {"class": kind, "x": x, "y": y, "width": width, "height": height})
