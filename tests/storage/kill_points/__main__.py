"""`scripts/kill-points`: a pass of compaction on real files, killed at every system call."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from tests.storage.kill_points.campaign import (
    START_NAMES,
    Outcome,
    PassCampaign,
    StartCampaign,
    deaths_around_a_merge,
)
from tests.storage.kill_points.prepared_log import Prepared, prepare
from tests.storage.kill_points.strace import Point, why_not


@click.command("kill-points")
@click.option("--points", "chosen", metavar="A..B", help="Only these positions in the pass, and no starts.")
def main(chosen: str | None) -> None:
    """Kill a pass of compaction at each of its system calls, open the log again, judge it, and run the pass once more.
    Then kill the start of the node after four of these deaths in the same way.

    Exit code: 0 nothing found; 1 a log is neither before nor after; 2 it could not be done.
    """
    reason = why_not()
    if reason is not None:
        click.echo(reason, err=True)
        sys.exit(2)
    failed = False
    with tempfile.TemporaryDirectory(prefix="varve-kill-points-") as name:
        folder = Path(name)
        prepared = prepare(folder / "prepared")
        of_pass = PassCampaign(prepared, folder)
        points = of_pass.points
        if chosen is not None:
            first, _, last = chosen.partition("..")
            points = points[int(first) : int(last or first) + 1]
        failed |= _report("The pass", of_pass.points, of_pass.run(points), prepared)
        if chosen is None:
            for title, death in zip(START_NAMES, deaths_around_a_merge(of_pass, prepared), strict=True):
                of_start = StartCampaign(of_pass, prepared, folder, death)
                title = f"The start after a death {title}"
                failed |= _report(title, of_start.points, of_start.run(of_start.points), prepared)
    sys.exit(failed)


def _report(title: str, points: Sequence[Point], outcomes: Iterable[Outcome], prepared: Prepared) -> bool:
    """Print the table. Returns whether something failed."""
    console = Console()
    done: list[Outcome] = []
    with console.status("") as status:
        for outcome in outcomes:
            done.append(outcome)
            status.update(f"{title}: {len(done)} of {len(points)}")
    table = Table(title=f"{title}: {len(done)} deaths at {len(points)} system calls")
    for column in ("system call", "calls", "tried", "before", "between", "after", "failed"):
        table.add_column(column, justify="left" if column == "system call" else "right")
    for name in sorted({point.name for point in points}):
        calls = sum(point.name == name for point in points)
        table.add_row(name, str(calls), *_counts([x for x in done if x.point.name == name], prepared))
    table.add_section()
    table.add_row("all", str(len(points)), *_counts(done, prepared))
    console.print(table)
    failures = [outcome for outcome in done if outcome.found is None]
    for outcome in failures:
        position, name, _, arguments = outcome.point
        console.print(f"{position}: {name}({arguments}\n    {outcome.failure}", markup=False, soft_wrap=True)
    return bool(failures)


def _counts(outcomes: Sequence[Outcome], prepared: Prepared) -> list[str]:
    """Deaths, and what they left: the log before the pass, with some segments in place, with all, or something else."""
    swapped = [outcome.found.swapped_count for outcome in outcomes if outcome.found is not None]
    last = len(prepared.states) - 1
    before, after = swapped.count(0), swapped.count(last)
    between = len(swapped) - before - after
    return [str(x) for x in (len(outcomes), before, between, after, len(outcomes) - len(swapped))]


if __name__ == "__main__":
    main()
