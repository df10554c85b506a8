"""`varve cluster reassign`: partitions move to other nodes, by a plan as kafka-reassign-partitions has it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from broker.cli.clients import bootstrap_option
from broker.cli.root import CommandError

if TYPE_CHECKING:
    from broker.cli.cluster_state import Partition

_plan_argument = click.argument("plan", type=click.Path(exists=True, dir_okay=False, path_type=Path))


@click.group()
def reassign() -> None:
    """Move partitions to other nodes: generate a plan, execute it, verify that it is done, or cancel it."""


def _node_ids(_: click.Context, __: click.Parameter, value: str | None) -> list[int] | None:
    if value is None:
        return None
    parts = value.split(",")
    if not all(part.isdecimal() for part in parts) or len(set(parts)) != len(parts):
        raise click.BadParameter("expected the ids of brokers, as in 1,2,3")
    return [int(part) for part in parts]


@reassign.command()
@click.option("--topic", "topics", multiple=True, help="Only this topic. Repeatable.")
@click.option(
    "--brokers", callback=_node_ids, help="Where the replicas may be.  [default: all that are alive]"
)
@click.option(
    "--replication-factor", type=click.IntRange(1), help="Replicas of each.  [default: as many as now]"
)
@bootstrap_option
def generate(
    topics: tuple[str, ...],
    brokers: list[int] | None,
    replication_factor: int | None,
    bootstrap_server: str,
) -> None:
    """Print a plan that spreads replicas and preferred leaders evenly and moves as little as it can.

    Only what changes is in it. Standard output is the plan and nothing else.
    """
    from broker.cli.cluster_state import chosen, look
    from broker.cli.moves import to_json
    from broker.cli.plans import PlanError, spread

    state = look(bootstrap_server)
    unknown = [node_id for node_id in brokers or () if node_id not in state.brokers]
    if unknown:
        raise CommandError(f"there is no broker {unknown[0]}")
    current = {name: x.replicas for name, x in chosen(state, topics).items()}
    try:
        plan = spread(current, brokers or state.alive, replication_factor)
    except PlanError as error:
        raise CommandError(str(error)) from None
    plan = {name: replicas for name, replicas in plan.items() if replicas != current[name]}
    click.echo(to_json(plan))
    click.echo(f"{len(plan)} of {len(current)} partitions change.", err=True)


@reassign.command()
@_plan_argument
@click.option("--wait", "is_waiting", is_flag=True, help="Stay until all have moved.")
@bootstrap_option
def execute(plan: Path, is_waiting: bool, bootstrap_server: str) -> None:
    """Start what the plan says. Standard output is the plan that leads back."""
    from broker.cli.cluster_state import look
    from broker.cli.moves import alter, from_file, to_json, wait

    wishes = from_file(plan)
    state = look(bootstrap_server)
    before = {name: state.partitions[name].replicas for name in wishes if name in state.partitions}
    _refuse(alter(bootstrap_server, wishes), len(wishes))
    click.echo(to_json(before))
    click.echo(f"{len(wishes)} partitions move. The plan above leads back.", err=True)
    if is_waiting:
        wait(bootstrap_server, list(wishes), lambda left: click.echo(f"{left} still move.", err=True))


@reassign.command()
@_plan_argument
@bootstrap_option
def verify(plan: Path, bootstrap_server: str) -> None:
    """Say of each partition whether it is where the plan wants it. Exit code 1 while one is not."""
    from broker.cli.cluster_state import look
    from broker.cli.moves import from_file, ongoing

    wishes = from_file(plan)
    moving, state = ongoing(bootstrap_server), look(bootstrap_server)
    is_done = True
    for name, wish in sorted(wishes.items()):
        found = state.partitions.get(name)
        if name in moving:
            adding, removing = moving[name]
            verdict = f"is still in progress (adding {adding}, removing {removing})"
        elif found is None:
            verdict = "cannot be: there is no such partition"
        elif found.replicas != wish:
            verdict = f"is not what is there: the replicas are {found.replicas}"
        else:
            click.echo(f"Reassignment of partition {name[0]}-{name[1]} is completed.")
            continue
        is_done = False
        click.echo(f"Reassignment of partition {name[0]}-{name[1]} {verdict}.")
    sys.exit(not is_done)


@reassign.command()
@click.argument("plan", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--all", "is_all", is_flag=True, help="Everything that is on its way.")
@bootstrap_option
def cancel(plan: Path | None, is_all: bool, bootstrap_server: str) -> None:
    """Give up what a plan began, or all: the partitions stay where they were before."""
    from broker.cli.moves import alter, from_file, ongoing

    if (plan is None) != is_all:
        raise click.UsageError("name a plan, or --all")
    moving = ongoing(bootstrap_server)
    wanted = [name for name in moving if plan is None or name in from_file(plan)]
    if not wanted:
        click.echo("Nothing of it is on its way.")
        return
    _refuse(alter(bootstrap_server, dict.fromkeys(wanted)), len(wanted))
    for topic, number in sorted(wanted):
        click.echo(f"Cancelled {topic}-{number}.")


def _refuse(refused: dict[Partition, str], asked: int) -> None:
    if refused:
        for (topic, number), why in sorted(refused.items()):
            click.echo(f"{topic}-{number}: {why}", err=True)
        raise CommandError(f"{len(refused)} of {asked} partitions were refused")
