"""Tables for the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import click


def aligned(
    rows: Sequence[Sequence[str]], *, gap: str = "  ", least_widths: Sequence[int] | None = None
) -> list[str]:
    """A line for each row, columns side by side. All rows have as many, and there is one at least."""
    least = least_widths or [0] * len(rows[0])
    widths = [max(at_least, *map(len, column)) for at_least, *column in zip(least, *rows, strict=True)]
    return [
        gap.join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]


def print_aligned(
    rows: Sequence[Sequence[str]], *, gap: str = "  ", least_widths: Sequence[int] | None = None
) -> None:
    """Print the lines of `aligned`."""
    for line in aligned(rows, gap=gap, least_widths=least_widths):
        click.echo(line)


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    least_width: int = 0,
    least_widths: Mapping[str, int] | None = None,
) -> None:
    """As Kafka's tool for groups prints tables. A value that is None is printed as `-`."""
    texts = [["-" if value is None else str(value) for value in row] for row in rows]
    widths = [(least_widths or {}).get(column, least_width) for column in columns]
    print_aligned([columns, *texts], gap=" ", least_widths=widths)
