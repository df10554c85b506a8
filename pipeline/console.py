"""What every command says and how it ends: lines with the time, errors in plain words, exit codes."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import takewhile
from pathlib import Path
from types import FrameType
from typing import NoReturn

import click
from rich.console import Console

from pipeline.errors import PipelineError
from pipeline.run_files import is_loaded

# One console for all that is not a result: lines printed above a moving progress bar must go through it.
STDERR = Console(stderr=True)

EXIT_FAILED = 1
EXIT_NOT_DONE = 2
EXIT_INTERRUPTED = 128 + signal.SIGINT
_TOLD_LINES = 12


def warn(text: str) -> None:
    STDERR.print(text, style="bold yellow", markup=False, highlight=False, soft_wrap=True)


def say_with_time() -> Callable[[str], None]:
    """A function that prints a line with the time since now."""
    started = time.monotonic()

    def say(text: str) -> None:
        line = f"[{time.monotonic() - started:6.1f} s] {text}"
        STDERR.print(line, markup=False, highlight=False, soft_wrap=True)

    return say


def exit_on_sigterm() -> None:
    """Make SIGTERM an exception, so that what was started is stopped on the way out."""

    def leave(number: int, _: FrameType | None) -> NoReturn:
        sys.exit(128 + number)

    signal.signal(signal.SIGTERM, leave)


@contextmanager
def known_errors_as_exit_code() -> Iterator[None]:
    """Say what is the matter and what helps, and exit with code 2. Writes nothing: for commands that only read."""
    try:
        yield
    except PipelineError as error:
        _leave_undone(str(error))
    except ModuleNotFoundError as error:
        _leave_undone(
            f"{error.name} is not installed here; pip install 'varve[spark,jre]' (in a checkout: '.[spark,jre]')"
        )


def _leave_undone(reason: str) -> NoReturn:
    click.echo(f"pipeline: {reason}", err=True)
    sys.exit(EXIT_NOT_DONE)


@contextmanager
def errors_as_exit_code(log: Path) -> Iterator[None]:
    """The same for a job that writes to the folder of `log`: it also says there that it was interrupted, and what Spark
    said is in the log."""
    try:
        with known_errors_as_exit_code():
            yield
    except click.ClickException:
        raise
    except KeyboardInterrupt:
        _leave_interrupted(log.parent)
    except Exception as error:
        # Spark's and Py4J's own trees; the lines before Java's stack tell, the log has the rest.
        lines = str(error).strip().splitlines() or [type(error).__name__]
        told = takewhile(lambda line: not line.startswith("\tat "), lines[:_TOLD_LINES])
        click.echo(
            f"pipeline: the job failed: {' '.join(map(str.strip, told))}\n    (details: {log})", err=True
        )
        with suppress(OSError), log.open("a") as details:  # the first lines are said above
            details.write(f"{error}\n")
        sys.exit(EXIT_NOT_DONE)


def _leave_interrupted(run: Path) -> NoReturn:
    """A run says that it was interrupted, and one that has its acknowledgements can be verified for them."""
    from pipeline.summary import update_summary

    if run.is_dir():
        update_summary(run, "interrupted", {"at": time.strftime("%Y-%m-%dT%H:%M:%S%z")})
    click.echo("pipeline: interrupted", err=True)
    if is_loaded(run):
        click.echo(
            f"What was acknowledged can be verified: python -m pipeline verify --run {run} ...", err=True
        )
    sys.exit(EXIT_INTERRUPTED)
