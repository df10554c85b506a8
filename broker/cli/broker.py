"""`varve broker decommission`: move all partitions away from a broker and remove it from the cluster."""

from __future__ import annotations

from functools import partial

import click

from broker.cli.clients import bootstrap_option
from broker.cli.root import CommandError


@click.group()
def broker() -> None:
    """Commands about single brokers of a cluster."""


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
            raise CommandError(f"{len(refused)} partitions cannot be moved; {topic}-{number}: {why}")
        wait_until_moved(bootstrap_server, list(plan), partial(_print_progress, len(plan)))
    wait_until_moved(
        bootstrap_server, list(current), lambda left: click.echo(f"{left} partitions are still moving.")
    )
    question = UnregisterBrokerRequest(broker_id=node_id)
    answer = WireClient(bootstrap_server).ask(question, 0, UnregisterBrokerResponse)
    check_error(answer.error_code, answer.error_message)
    click.echo(f"Broker {node_id} holds nothing and is unregistered. It can be stopped for good.")


def _print_progress(total: int, left: int) -> None:
    click.echo(f"{total - left} of {total} partitions have moved.")
