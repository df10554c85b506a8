"""What the sections of a report are made of: figures with their plots and numbers, and tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count

from pipeline.report.markup import Child, Html, element, join
from pipeline.report.plot import NARROW, WIDE, Chart, Line, Size, Strip, draw, draw_strip, key
from pipeline.report.run import Run


@dataclass(slots=True)
class Pictures:
    """Draws the plots of one page, and gives each an identity of its own."""

    _numbers: count[int] = field(default_factory=lambda: count(1))

    def plot(self, pictures: Sequence[Chart | Strip], wide: Size = WIDE) -> Html:
        """One picture, drawn for wide and for narrow pages; or several side by side, one below the other on a phone."""
        if len(pictures) == 1:
            drawn = (("wide", wide), ("narrow", NARROW))
            return join(
                *(element("div", {"class": name}, self._draw(pictures[0], size)) for name, size in drawn)
            )
        panels = [element("div", None, *self._panel(picture)) for picture in pictures]
        return element("div", {"class": "panels"}, *panels)

    def _panel(self, picture: Chart | Strip) -> tuple[Html, Html]:
        return element("p", {"class": "panel-name"}, picture.title), self._draw(picture, NARROW)

    def _draw(self, picture: Chart | Strip, size: Size) -> Html:
        identity = f"plot{next(self._numbers)}"
        if isinstance(picture, Chart):
            return draw(picture, size, identity)
        return draw_strip(picture, size, identity)


def label(run: Run, runs: Sequence[Run]) -> str:
    """The folder's name, or its path where both have the same name."""
    return run.name if len({other.name for other in runs}) == len(runs) else str(run.folder)


#: In the place of a figure that there is not.
NOTHING = "\N{EN DASH}"


def section(title: str, *children: Child) -> Html:
    return element("section", None, element("h2", None, title), *children)


def paragraph(text: Child, kind: str | None = None) -> Html | None:
    return element("p", {"class": kind}, text) if text else None


def legend(lines: Sequence[Line]) -> Html:
    """One entry for each name, however many panels have it."""
    once = {line.name: line for line in lines}
    entries = [element("li", None, key(line.kind, line.shape), line.name) for line in once.values()]
    return element("ul", {"class": "legend"}, *entries)


def table(
    caption: str,
    header: Sequence[str],
    rows: Sequence[Sequence[Child]],
    numbers_from: int = 1,
    kind: str | None = None,
) -> Html:
    """The first cell of a row is its name. `numbers_from`: from this column on, cells are set like numbers."""

    def alignment(column: int) -> str | None:
        return "number" if column >= numbers_from else None

    head = [
        element("th", {"scope": "col", "class": alignment(column)}, name)
        for column, name in enumerate(header)
    ]
    body = [element("tr", None, *_cells(row, alignment)) for row in rows]
    inner = element(
        "table",
        {"class": kind},
        element("caption", None, caption),
        element("thead", None, element("tr", None, *head)),
        element("tbody", None, *body),
    )
    # Reachable by keyboard, as it may have to be scrolled.
    return element(
        "div", {"class": "scroll", "tabindex": "0", "role": "region", "aria-label": caption}, inner
    )


def _cells(row: Sequence[Child], alignment: object) -> list[Html]:
    assert callable(alignment), "table hands over its own"
    first = element("th", {"scope": "row"}, row[0])
    return [
        first,
        *(element("td", {"class": alignment(column)}, cell) for column, cell in enumerate(row[1:], 1)),
    ]


def folded(summary: str, inner: Html) -> Html:
    """What is a click away."""
    return element("details", None, element("summary", None, summary), inner)
