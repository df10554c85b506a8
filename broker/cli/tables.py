"""Tables for the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import click


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    least_width: int = 0,
    least_widths: Mapping[str, int] | None = None,
) -> None:
    """Print columns side by side. A value that is None is printed as `-`."""
    texts = [["-" if value is None else str(value) for value in row] for row in rows]
    widths = [
        max((least_widths or {}).get(column, least_width), *(len(row[at]) for row in [columns, *texts]))
        for at, column in enumerate(columns)
    ]
    for row in [columns, *texts]:
        click.echo(" ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())
