"""`varve broker list|decommission`: the brokers of a cluster; move all partitions away from one and remove it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from broker.cli.bootstrap import bootstrap_option
from broker.cli.output import counted, format_option, print_list
from broker.cli.root import CommandError
from broker.cli.tables import print_table

if TYPE_CHECKING:
    from broker.cli.cluster_state import ClusterState


@click.group()
def broker() -> None:
    """Commands about single brokers of a cluster."""


@broker.command(name="list")
@bootstrap_option
@format_option
def list_brokers(bootstrap_server: str, shape: str) -> None:
    """List the brokers, with what each holds. The controller has a *."""
    from broker.cli.cluster_state import describe_cluster

    state = describe_cluster(bootstrap_server)
    rows = broker_rows(state)
    if shape == "json":
        print_list("brokers", rows, controller_id=state.controller)
    else:
        print_brokers(rows)


def broker_rows(state: ClusterState) -> list[dict[str, object]]:
    """A row for each broker, as in JSON."""
    return [
        {
            "id": node_id,
            "host": host,
            "port": port,
            "controller": node_id == state.controller,
            "state": "down" if node_id in state.down else "up",
            "leaders": sum(each.leader == node_id for each in state.partitions.values()),
            "replicas": sum(node_id in each.replicas for each in state.partitions.values()),
        }
        for node_id, (host, port) in sorted(state.brokers.items())
    ]


def print_brokers(rows: Sequence[Mapping[str, object]]) -> None:
    print_table(
        ("ID", "HOST", "PORT", "STATE", "LEADERS", "REPLICAS"),
        [
            (
                f"{row['id']}{'*' if row['controller'] else ''}",
                *(row[key] for key in ("host", "port", "state", "leaders", "replicas")),
            )
            for row in rows
        ],
    )


@broker.command()
@click.argument("node_id", type=click.IntRange(0), metavar="ID")
@click.option(
    "--dry-run",
    is_flag=True,
    help="Print the plan in the format of kafka-reassign-partitions. Change nothing.",
)
@bootstrap_option
def decommission(node_id: int, dry_run: bool, bootstrap_server: str) -> None:
    """Remove a broker from the cluster.

    All partitions are moved to other brokers. When they have moved, the broker is unregistered.

    If the command is interrupted, run it again: it continues with the partitions that are left. Afterwards, stop the
    broker for good and remove it from controller.quorum.voters of the other nodes. It stays a voter of the metadata
    until they are restarted.
    """
    from broker.cli.cluster_state import describe_cluster
    from broker.cli.moves import alter_reassignments, plan_to_json, wait_until_moved
    from broker.cli.plans import PlanError, plan_removal
    from broker.cli.wire_client import WireClient, check_error
    from protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse

    while True:
        # Repeated until nothing is left: topics may have been created on the broker meanwhile.
        state = describe_cluster(bootstrap_server)
        if node_id not in state.brokers:
            raise CommandError(f"there is no broker {node_id}")
        current = {name: x.replicas for name, x in state.partitions.items()}
        others = [other for other in state.alive if other != node_id]
        try:
            plan = plan_removal(current, node_id, others)
        except PlanError as error:
            raise CommandError(
                f"{error}; `varve cluster reassign generate --replication-factor` plans fewer replicas"
            ) from None
        if dry_run:
            click.echo(plan_to_json(plan))
            return
        if not plan:
            break
        refused = alter_reassignments(bootstrap_server, plan)
        if refused:
            (topic, number), why = min(refused.items())
            raise CommandError(
                f"{counted(len(refused), 'partition')} cannot be moved; {topic}-{number}: {why}"
            )
        wait_until_moved(bootstrap_server, list(plan))
        click.echo(f"{counted(len(plan), 'partition')} moved.")
    wait_until_moved(bootstrap_server, list(current))
    question = UnregisterBrokerRequest(broker_id=node_id)
    answer = WireClient(bootstrap_server).ask(question, 0, UnregisterBrokerResponse)
    check_error(answer.error_code, answer.error_message)
    click.echo(f"Broker {node_id} holds nothing and is unregistered. It can be stopped for good.")
