"""`varve cluster reassign`: move partitions to other nodes, by plans in the format of kafka-reassign-partitions."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from broker.cli.bootstrap import bootstrap_option
from broker.cli.output import counted
from broker.cli.root import CommandError

if TYPE_CHECKING:
    from broker.cli.cluster_state import Partition

_plan_argument = click.argument("plan", type=click.Path(exists=True, dir_okay=False, path_type=Path))


@click.group()
def reassign() -> None:
    """Move partitions to other nodes.

    Generate a plan, execute it, and verify that it is completed, or cancel it.
    """


def _node_ids(_: click.Context, __: click.Parameter, value: str | None) -> list[int] | None:
    if value is None:
        return None
    parts = value.split(",")
    if not all(part.isdecimal() for part in parts) or len(set(parts)) != len(parts):
        raise click.BadParameter("expected broker ids, as in 1,2,3")
    return [int(part) for part in parts]


@reassign.command()
@click.option("--topic", "topics", multiple=True, help="Only this topic. Repeatable.  [default: all topics]")
@click.option(
    "--brokers", callback=_node_ids, help="The brokers that may hold replicas.  [default: all that are alive]"
)
@click.option(
    "--replication-factor",
    type=click.IntRange(1),
    help="Replicas of each partition.  [default: as many as now]",
)
@bootstrap_option
def generate(
    topics: tuple[str, ...],
    brokers: list[int] | None,
    replication_factor: int | None,
    bootstrap_server: str,
) -> None:
    """Print a plan that spreads replicas evenly.

    It spreads preferred leaders evenly, too, and moves as few replicas as possible. The plan holds only the partitions
    that change. Standard output is the plan and nothing else.
    """
    from broker.cli.cluster_state import describe_cluster, select_partitions
    from broker.cli.moves import plan_to_json
    from broker.cli.plans import PlanError, plan_even_spread

    state = describe_cluster(bootstrap_server)
    unknown = [node_id for node_id in brokers or () if node_id not in state.brokers]
    if unknown:
        raise CommandError(f"there is no broker {unknown[0]}")
    current = {name: x.replicas for name, x in select_partitions(state, topics).items()}
    try:
        plan = plan_even_spread(current, brokers or state.alive, replication_factor)
    except PlanError as error:
        raise CommandError(str(error)) from None
    plan = {name: replicas for name, replicas in plan.items() if replicas != current[name]}
    click.echo(plan_to_json(plan))
    click.echo(
        f"{len(plan)} of {counted(len(current), 'partition')} {'changes' if len(plan) == 1 else 'change'}.",
        err=True,
    )


@reassign.command()
@_plan_argument
@click.option("--wait", "is_waiting", is_flag=True, help="Wait until all partitions have moved.")
@bootstrap_option
def execute(plan: Path, is_waiting: bool, bootstrap_server: str) -> None:
    """Start the reassignments of a plan. Standard output is a plan that undoes them."""
    from broker.cli.cluster_state import describe_cluster
    from broker.cli.moves import alter_reassignments, plan_to_json, read_plan, wait_until_moved

    targets = read_plan(plan)
    state = describe_cluster(bootstrap_server)
    before = {name: state.partitions[name].replicas for name in targets if name in state.partitions}
    _raise_if_refused(alter_reassignments(bootstrap_server, targets), len(targets))
    click.echo(plan_to_json(before))
    are = "is" if len(targets) == 1 else "are"
    click.echo(
        f"{counted(len(targets), 'partition')} {are} moving. The plan above moves them back.", err=True
    )
    if is_waiting:
        wait_until_moved(bootstrap_server, list(targets))
        click.echo("All have moved.", err=True)


@reassign.command()
@_plan_argument
@bootstrap_option
def verify(plan: Path, bootstrap_server: str) -> None:
    """Show for each partition whether its reassignment is completed. Exit code 1 if one is not."""
    from broker.cli.cluster_state import describe_cluster
    from broker.cli.moves import list_reassignments, read_plan

    targets = read_plan(plan)
    moving, state = list_reassignments(bootstrap_server), describe_cluster(bootstrap_server)
    is_done = True
    for name, target in sorted(targets.items()):
        found = state.partitions.get(name)
        if name in moving:
            adding, removing = moving[name]
            verdict = f"is still in progress (adding {adding}, removing {removing})"
        elif found is None:
            verdict = "failed: there is no such partition"
        elif found.replicas != target:
            verdict = f"is not under way: the replicas are {found.replicas}, not {target}"
        else:
            click.echo(f"Reassignment of partition {name[0]}-{name[1]} is completed.")
            continue
        is_done = False
        click.echo(f"Reassignment of partition {name[0]}-{name[1]} {verdict}.")
    sys.exit(not is_done)


@reassign.command()
@click.argument("plan", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--all", "is_all", is_flag=True, help="Cancel all reassignments under way.")
@bootstrap_option
def cancel(plan: Path | None, is_all: bool, bootstrap_server: str) -> None:
    """Cancel the reassignments of a plan, or all. The partitions stay on the nodes where they were before."""
    from broker.cli.moves import alter_reassignments, list_reassignments, read_plan

    if (plan is None) != is_all:
        raise click.UsageError("name a plan, or --all")
    moving = list_reassignments(bootstrap_server)
    wanted = [name for name in moving if plan is None or name in read_plan(plan)]
    if not wanted:
        click.echo("Nothing to cancel: no such reassignment is under way.")
        return
    _raise_if_refused(alter_reassignments(bootstrap_server, dict.fromkeys(wanted)), len(wanted))
    for topic, number in sorted(wanted):
        click.echo(f"Cancelled {topic}-{number}.")


def _raise_if_refused(refused: dict[Partition, str], asked: int) -> None:
    if refused:
        for (topic, number), why in sorted(refused.items()):
            click.echo(f"{topic}-{number}: {why}", err=True)
        raise CommandError(f"{len(refused)} of {counted(asked, 'partition')} refused")
