"""`scripts/nemesis`: three real brokers, real clients, real faults, and a verdict."""

from __future__ import annotations

import shutil
import signal
import sys
import time
from pathlib import Path
from types import FrameType
from typing import NoReturn

import click
from rich.console import Console
from rich.table import Table

from tests.history.report import as_text
from tests.integration.faults import network, power
from tests.integration.faults.campaign import Outcome, random_seed, run_campaign
from tests.integration.faults.nemesis import FAULTS

_NEED_NAMESPACES = ("partition", "full-disk")


@click.command("nemesis")
@click.option("--minutes", default=30.0, show_default=True, type=click.FloatRange(min=0.1))
@click.option("--seed", type=int, help="Decides what befalls the cluster and when.  [default: a random one]")
@click.option(
    "--faults", default=",".join(FAULTS), show_default=True, help="Those that may happen; `none` for none."
)
@click.option(
    "--against", metavar="HOST:PORT", help="A cluster that runs already; it is used and judged, not broken."
)
@click.option(
    "--out", type=click.Path(path_type=Path), help="Histories and logs.  [default: runs/nemesis-TIME]"
)
@click.option("--keep", is_flag=True, help="Keep them when nothing was found, too.")
def main(
    minutes: float, seed: int | None, faults: str, against: str | None, out: Path | None, keep: bool
) -> None:
    """Break a cluster of three brokers for some minutes, then judge what its clients were told (scripts/check-history).

    Exit code: 0 nothing found; 1 a violation, a node that ended by itself, or no recovery; 2 it could not be done.
    """
    chosen = [] if against or faults == "none" else faults.split(",")
    if unknown := set(chosen) - set(FAULTS):
        raise click.BadParameter(
            f"{', '.join(sorted(unknown))}: not among {', '.join(FAULTS)}", param_hint="--faults"
        )
    chosen = _possible(chosen)
    seed = random_seed() if seed is None else seed
    folder = out or Path("runs") / time.strftime("nemesis-%Y%m%d-%H%M%S")
    if folder.exists():
        raise click.BadParameter(f"{folder} exists already", param_hint="--out")
    signal.signal(signal.SIGTERM, _leave)
    started = time.monotonic()

    def say(text: str) -> None:
        print(f"[{time.monotonic() - started:7.1f} s] {text}", file=sys.stderr, flush=True)

    say(f"seed {seed}; faults: {', '.join(chosen) or 'none'}; {folder}")
    outcome = run_campaign(folder, seed, minutes * 60, chosen, say, against)
    _show(outcome, minutes, seed)
    if not outcome.passed:
        print(f"Everything is kept in {folder}")
        sys.exit(1)
    if not keep:
        shutil.rmtree(folder)


def _possible(chosen: list[str]) -> list[str]:
    """Those that this machine allows; says which it does not. May replace the process (network.enter)."""
    wanted = [fault for fault in chosen if fault in _NEED_NAMESPACES]
    if wanted and not network.is_inside():
        try:
            network.enter(["-m", "tests.integration.faults", *sys.argv[1:]])
        except network.NoNamespacesError as error:
            print(f"left out: {', '.join(wanted)}: no namespaces of our own here ({error})", file=sys.stderr)
            chosen = [fault for fault in chosen if fault not in wanted]
    if "power" in chosen and not power.is_possible():
        print("left out: power: it needs Linux and a C compiler", file=sys.stderr)
        chosen = [fault for fault in chosen if fault != "power"]
    return chosen


def _show(outcome: Outcome, minutes: float, seed: int) -> None:
    table = Table(title=f"Nemesis: {minutes:g} minutes, seed {seed}", title_justify="left", show_header=False)
    table.add_column(no_wrap=True)
    table.add_column()
    table.add_row("faults", ", ".join(f"{kind} {count}" for kind, count in sorted(outcome.faults.items())))
    if outcome.checked is not None:
        sends = outcome.checked["sends"]
        table.add_row("operations", f"{outcome.checked['operations']:,}")
        table.add_row("acknowledged", f"{sends['ok']:,}")
        table.add_row("failed for certain", f"{sends['failed']:,}")
        table.add_row("unknown", f"{sends['unknown']:,}")
        transactions = outcome.checked["transactions"]
        table.add_row(
            "transactions",
            f"{transactions['ok']:,} committed, {transactions['failed']:,} aborted, "
            f"{transactions['unknown']:,} unknown",
        )
        table.add_row("records read", f"{outcome.checked['records_read']:,}")
        table.add_row("longest unavailability", f"{outcome.longest_unavailability_s:.1f} s of one partition")
    table.add_row("verdict", "[bold green]nothing found[/]" if outcome.passed else "[bold red]FAILED[/]")
    Console().print(table)
    for problem in outcome.problems:
        print(f"problem: {problem}")
    if outcome.checked is not None and not outcome.checked["valid"]:
        print(as_text(outcome.checked))


def _leave(number: int, _: FrameType | None) -> NoReturn:
    """Make SIGTERM an exception, so that what was started is stopped on the way out."""
    sys.exit(128 + number)


if __name__ == "__main__":
    main()
