"""`varve demo`: what coordinated compaction is good for, shown on real brokers."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from broker.cli.divergence.scenarios import SCENARIOS, Scenario
from broker.cli.divergence.variants import FOR_OTHER_CLUSTERS, KILLED, STOPPED, VARIANTS, Variant
from broker.cli.output import format_option
from broker.cli.root import CommandError

if TYPE_CHECKING:
    from broker.cli.divergence.interrupts import Interrupts
    from broker.cli.divergence.play import Outcome

#: As a shell says it of a command that Ctrl-C has ended.
_INTERRUPTED = 130


@click.group()
def demo() -> None:
    """Demonstrations on real brokers."""


class _Narrator:
    """Says on standard error what happens, and waits for Enter if that is wanted."""

    def __init__(self, *, is_stepping: bool) -> None:
        self._is_stepping = is_stepping
        self._begun = time.monotonic()

    def say(self, text: str) -> None:
        click.echo(f"[{time.monotonic() - self._begun:5.1f} s] {text}", err=True)

    def show(self, text: str, commands: Sequence[str]) -> None:
        if not self._is_stepping:
            return
        click.echo(f"\n{text} Look at it from another terminal:\n", err=True)
        for command in commands:
            click.echo(f"  varve {command}", err=True)
        click.echo("\nEnter goes on, Ctrl-C ends it. ", err=True, nl=False)
        if not sys.stdin.readline():
            click.echo("", err=True)  # nobody is there to look


_VARIANT_HELP = "\b\nVariants:\n" + "\n".join(
    f"  {variant.name:<16}{variant.text}" for variant in VARIANTS.values()
)


@demo.command(epilog=_VARIANT_HELP)
@click.option(
    "--both", "mode", flag_value="both", default=True, help="Without coordination, then with it.  [default]"
)
@click.option("--without-coordination", "mode", flag_value="off", help="Only without coordination.")
@click.option("--with-coordination", "mode", flag_value="on", help="Only with coordination.")
@click.option(
    "--scenario",
    "numbers",
    type=click.IntRange(1, len(SCENARIOS)),
    multiple=True,
    help="Only this scenario. Repeatable.",
)
@click.option(
    "--variant", "variant_name", type=click.Choice(list(VARIANTS)), help="How B is away.  [default: killed]"
)
@click.option("--step", is_flag=True, help="Stop after each step, and say what can be looked at.")
@click.option("--keep", is_flag=True, help="Keep the folder with the data and the logs of the brokers.")
@click.option(
    "--against", metavar="HOST:PORT,...", help="Play it on this cluster, which may be Apache Kafka."
)
@click.option(
    "--stop-node", metavar="COMMAND", help="What stops a broker of that cluster. {node} stands for its id."
)
@click.option("--start-node", metavar="COMMAND", help="What starts it again, likewise.")
@format_option
def divergence(
    mode: str,
    numbers: tuple[int, ...],
    variant_name: str | None,
    step: bool,
    keep: bool,
    against: str | None,
    stop_node: str | None,
    start_node: str | None,
    shape: str,
) -> None:
    """Show how replicas that compact by themselves come to differ for ever.

    Three brokers are started in a temporary folder. One of them, B, is away while the others compact. When it is back
    and leads, it answers something else than the others: a deleted key is back, an aborted record is read, a commit is
    undone, readers of committed data stop. With coordination none of that happens. It takes about a minute.

    --against plays it on another cluster, of at least three brokers. Topics are created there, and deleted at the end.
    Apache Kafka shows the damage within the same time if its brokers have log.cleaner.backoff.ms=300,
    log.initial.task.delay.ms=100, producer.id.expiration.ms=1000 and producer.id.expiration.check.interval.ms=300.

    Exit code 0: everything is damaged without coordination, and nothing with it. With --against: nothing is. 1: it is
    otherwise.
    """
    scenarios = [scenario for scenario in SCENARIOS if not numbers or scenario.number in numbers]
    narrator = _Narrator(is_stepping=step)
    if against is None:
        if stop_node is not None or start_node is not None:
            raise click.UsageError("--stop-node and --start-node are for --against")
        variant = VARIANTS[variant_name] if variant_name else KILLED
        modes = {"both": (False, True), "off": (False,), "on": (True,)}[mode]
        play = partial(_play_here, scenarios, variant, modes, narrator, keep=keep)
    else:
        if stop_node is None or start_node is None:
            raise click.UsageError("--against needs --stop-node and --start-node")
        if mode != "both" or keep:
            raise click.UsageError("another cluster decides by itself how it compacts, and keeps its data")
        if variant_name not in (None, *FOR_OTHER_CLUSTERS):
            raise click.UsageError(f"--against knows the variants {', '.join(FOR_OTHER_CLUSTERS)}")
        variant = VARIANTS[variant_name] if variant_name else STOPPED
        play = partial(_play_there, scenarios, variant, narrator, against, stop_node, start_node)
    outcomes, away = _uninterrupted(play)

    from broker.cli.divergence.report import as_json, as_table, is_as_promised

    if shape == "json":
        click.echo(json.dumps(as_json(outcomes, variant, away)))
    else:
        click.echo(as_table(outcomes, away))
    sys.exit(not is_as_promised(outcomes, variant))


_Played = tuple[list["Outcome"], int]
"""What came of it, and which node was away."""


def _uninterrupted(play: Callable[[Interrupts], _Played]) -> _Played:
    """Ends the process if somebody interrupts it: at once, and with everything tidied up."""
    from confluent_kafka import KafkaException

    from broker.cli.divergence.interrupts import Interrupts

    interrupts = Interrupts()
    try:
        with interrupts.heard():
            return play(interrupts)
    except KeyboardInterrupt:
        click.echo("\nvarve: interrupted, and everything is tidied up", err=True)
        sys.exit(_INTERRUPTED)
    except KafkaException as failure:
        raise CommandError(f"the cluster answers: {failure.args[0].str()}") from None


def _play_here(
    scenarios: Sequence[type[Scenario]],
    variant: Variant,
    modes: Sequence[bool],
    narrator: _Narrator,
    interrupts: Interrupts,
    *,
    keep: bool,
) -> _Played:
    from broker.cli.divergence.brokers import LocalBrokers
    from broker.cli.divergence.play import Play

    def play_once(is_coordinated: bool) -> _Played:
        name = "on" if is_coordinated else "off"
        narrator.say(f"coordination {name}: {variant.node_count} brokers start in {folder / name}")
        brokers = LocalBrokers(
            folder / name,
            variant.node_count,
            is_coordinated=is_coordinated,
            say=narrator.say,
            interrupts=interrupts,
        )
        try:
            brokers.start_all()
            play = Play(brokers, scenarios, variant, narrator, is_coordinated=is_coordinated)
            return play.run(), play.away
        finally:
            with interrupts.held():
                brokers.close()
            if keep:
                narrator.say(f"`varve cluster up --base-dir {folder / name}` starts these brokers again")

    folder = Path(tempfile.mkdtemp(prefix="varve-demo-"))
    try:
        played = [play_once(is_coordinated) for is_coordinated in modes]
    finally:
        with interrupts.held():
            if not keep:
                shutil.rmtree(folder)
    return [outcome for outcomes, _ in played for outcome in outcomes], played[0][1]


def _play_there(
    scenarios: Sequence[type[Scenario]],
    variant: Variant,
    narrator: _Narrator,
    bootstrap_server: str,
    stop_command: str,
    start_command: str,
    interrupts: Interrupts,
) -> _Played:
    from broker.cli.divergence.brokers import OtherBrokers
    from broker.cli.divergence.play import Play

    brokers = OtherBrokers(bootstrap_server, stop_command, start_command)
    # Topics and transactional ids of an earlier run may still be there.
    suffix = f"-{os.urandom(4).hex()}"
    play = Play(brokers, scenarios, variant, narrator, is_coordinated=None, suffix=suffix)
    try:
        return play.run(), play.away
    finally:
        narrator.say("the cluster is left as it was: every broker runs, and the topics are deleted")
        with interrupts.held():
            brokers.start_stopped()
            play.topics.delete()
