"""The question before something is deleted for good."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from broker.cli.root import CommandError

F = TypeVar("F", bound=Callable[..., Any])


def yes_option(command: F) -> F:
    return click.option("--yes", "-y", "is_sure", is_flag=True, help="Do not ask.")(command)


def confirm(deed: str, *, is_sure: bool) -> None:
    """`deed`: what will be done, as in "Delete topic t with all its records". Raises UsageError if there is nobody to
    ask, and CommandError if the answer is no."""
    if is_sure:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"{deed}? Nobody can be asked here: --yes says so beforehand")
    if not click.confirm(f"{deed}?", err=True):
        raise CommandError("nothing was deleted")


def named(names: list[str]) -> str:
    """`a`, `a and b`, `a, b and 3 more`."""
    if len(names) > 3:
        names = [*names[:2], f"{len(names) - 2} more"]
    return " and ".join(part for part in (", ".join(names[:-1]), names[-1]) if part)
