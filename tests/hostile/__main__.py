"""`scripts/hostile`: what a client with bad intent can do to a cluster."""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from tests.hostile.attacks.registry import ATTACKS, description
from tests.hostile.decoders import run_random
from tests.hostile.target import Address, discover
from tests.hostile.trial import Outcome, Row, Trial
from tests.integration.harness import ROOT


@click.command("hostile")
@click.argument("address", metavar="[HOST:PORT]", required=False)
@click.option("--attacks", "chosen", help="Names, with commas between; `none`.  [default: all]")
@click.option(
    "--peers", help="HOST:PORT,...: where the nodes, in the order of their ids, listen for each other."
)
@click.option(
    "--requests", default=20_000, show_default=True, help="The fuzzer stops when so many are processed."
)
@click.option("--decoder-runs", default=0, show_default=True, help="Of the decoders, in this process.")
@click.option("--seed", type=int, help="Of the fuzzer and of the decoders' bytes.  [default: a random one]")
@click.option("--list", "is_list", is_flag=True, help="Say what the attacks do.")
def main(
    address: str | None,
    chosen: str | None,
    peers: str | None,
    requests: int,
    decoder_runs: int,
    seed: int | None,
    is_list: bool,
) -> None:
    """Attack a cluster as a client with bad intent would, beside a client that behaves, and judge what became of it.

    The cluster gets topics, groups and settings that nobody wants: use one of its own (varve cluster up). The memory,
    the processor time and the logs of nodes are seen where they run on this machine, under this user.

    Exit code: 0 nothing found; 1 something was; 2 it could not be done.
    """
    if is_list:
        for name in ATTACKS:
            click.echo(f"{name:22} {description(name)}")
        return
    seed = random.SystemRandom().getrandbits(31) if seed is None else seed
    if decoder_runs:
        _run_decoders(decoder_runs, seed)
    if address is None:
        if not decoder_runs:
            raise click.UsageError("which cluster? (HOST:PORT)")
        return
    names = _names(chosen)
    try:
        listed = None if peers is None else [Address.parse(each) for each in peers.split(",")]
        target = discover(Address.parse(address), listed)
    except (ValueError, OSError) as error:
        raise click.ClickException(str(error)) from None
    started = time.monotonic()

    def say(text: str) -> None:
        print(f"[{time.monotonic() - started:6.1f} s] {text}", file=sys.stderr, flush=True)

    with tempfile.TemporaryDirectory(prefix="varve-hostile-") as folder:
        outcome = Trial(target, Path(folder), say).run(names, requests, seed)
    _show(outcome, seed)
    if not outcome.passed:
        sys.exit(1)


def _names(chosen: str | None) -> list[str]:
    names = list(ATTACKS) if chosen is None else [] if chosen == "none" else chosen.split(",")
    if unknown := set(names) - set(ATTACKS):
        raise click.BadParameter(f"{', '.join(sorted(unknown))}: see --list", param_hint="--attacks")
    return names


def _run_decoders(runs: int, seed: int) -> None:
    try:
        import atheris  # noqa: F401
    except ImportError:
        print("without atheris: random changes of valid messages", file=sys.stderr)
        run_random(runs, seed)
    else:
        command = [sys.executable, "-m", "tests.hostile.decoders_atheris", str(runs), str(seed)]
        if subprocess.run(command, cwd=ROOT, check=False).returncode:
            sys.exit(1)
    print(f"decoders: {runs:,} runs, seed {seed}: nothing found")


def _show(outcome: Outcome, seed: int) -> None:
    table = Table(title=f"Hostile trial, seed {seed}", title_justify="left")
    table.add_column("attack", no_wrap=True)
    table.add_column("what came back")
    for title in ("s", "memory, MB", "slowest ping, ms", "good p50 / p99 / max, ms", "leaders"):
        table.add_column(title, justify="right")
    for row in outcome.rows:
        table.add_row(*_cells(row), style="red" if row.problems else None)
    Console(width=None if sys.stdout.isatty() else 160).print(table)
    for row in outcome.rows:
        for problem in row.problems:
            print(f"problem: {row.name}: {problem}")
    print(
        f"{outcome.acknowledged:,} records of the good client acknowledged, {outcome.missing:,} of them lost"
    )
    print("nothing found" if outcome.passed else "FAILED")


def _cells(row: Row) -> list[str]:
    observed, latency = row.observed, row.latency
    return [
        row.name,
        ", ".join(f"{name} {count:,}" for name, count in row.counts.items()),
        f"{row.took_s:.0f}",
        " ".join(str(most) for _, most in sorted(observed.memory_mb.items())) or "-",
        f"{observed.slowest_ping_ms:.0f}",
        f"{latency.p50_ms:.1f} / {latency.p99_ms:.1f} / {latency.max_ms:.0f}",
        "changed" if observed.has_leader_changes else "same",
    ]


if __name__ == "__main__":
    main()
