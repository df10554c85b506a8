"""What commands print: `--format`, JSON, and numbers of things.

JSON is one object with a list of objects in it, also where the list has one element or none, so that a script need not
tell cases apart. Keys are in snake_case. docs/json.md lists them. Commands that stream (`produce`, `consume`) print one
object on each line instead.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def format_option(command: F) -> F:
    return click.option(
        "--format",
        "shape",
        type=click.Choice(["text", "json"]),
        default="text",
        show_default=True,
        help="Output format.",
    )(command)


def print_list(name: str, rows: Sequence[object], **head: object) -> None:
    """A JSON object with the list `name`, and what holds for all of its elements before it."""
    click.echo(json.dumps({**head, name: rows}))


def as_objects(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> list[dict[str, object]]:
    """The rows of a table as JSON has them. The columns have the names of Kafka's tools: `LastTimestamp` becomes
    `last_timestamp`, `Duration(min)` `duration_min`, `NEW-OFFSET` `new_offset`."""
    keys = [_key(column) for column in columns]
    return [dict(zip(keys, row, strict=True)) for row in rows]


def _key(column: str) -> str:
    if column.isupper():
        return column.lower().replace("-", "_")
    text = column.replace("(", "_").replace(")", "")
    return "".join(f"_{each.lower()}" if each.isupper() else each for each in text).lstrip("_")


def counted(number: int, noun: str, verb: str | None = None) -> str:
    """`1 record`, `2 records`; with a verb, `1 node answers`, `2 nodes answer`."""
    is_one = number == 1
    return f"{number:,} {noun}{'' if is_one else 's'}" + (f" {verb}{'s' if is_one else ''}" if verb else "")
