"""`python -m pipeline report RUN [--compare RUN]`."""

from __future__ import annotations

from pathlib import Path

import click

from pipeline.console import known_errors_as_exit_code
from pipeline.errors import PipelineError
from pipeline.options import RUN_FOLDER
from pipeline.run_files import CONFIG, SUMMARY

REPORT = "report.html"


@click.command("report")
@click.argument("run", type=RUN_FOLDER)
@click.option(
    "--compare",
    type=RUN_FOLDER,
    metavar="RUN",
    help="Show this run beside it, by the same axes.",
)
@click.option("--out", type=click.Path(path_type=Path), help="The file to write.  [default: RUN/report.html]")
def report_command(run: Path, compare: Path | None, out: Path | None) -> None:
    """Write one HTML file with what the folder RUN holds: of a load, of an experiment, or of a whole fault test."""
    # Not as the jobs do: what goes wrong here is no news of the run, and its folder stays as it is.
    with known_errors_as_exit_code():
        click.echo(write_report(run, compare, out))


def write_report(run: Path, compare: Path | None = None, out: Path | None = None) -> Path:
    """The file that was written. Raises PipelineError: no run, or a file that cannot be read or written."""
    # Arrow takes half a second to import, and only this command needs it.
    from pipeline.report.page import Article, page
    from pipeline.report.run import read_runs

    runs = read_runs(run)
    articles: list[Article] = [(one,) for one in runs]
    title = run.resolve().name
    if compare is not None:
        others = read_runs(compare)
        title = f"{title} against {compare.resolve().name}"
        if len(runs) == len(others) == 1:
            articles = [(runs[0], others[0])]
        else:
            by_name = {other.name: other for other in others}
            articles = [(one, by_name[one.name]) for one in runs if one.name in by_name]
            if not articles:
                raise PipelineError(f"{run} and {compare} have no run of the same name")
    file = out or run / REPORT
    try:
        text = page(title, articles)
    except KeyError as error:
        raise PipelineError(f"{run}: a section of {SUMMARY} or {CONFIG} lacks {error}") from error
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise PipelineError(f"{file} cannot be written: {error.strerror}") from error
    return file
