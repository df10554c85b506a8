"""`varve broker decommission`: a broker gives away all that it holds, and leaves the cluster."""

from __future__ import annotations

import click

from broker.cli.clients import bootstrap_option
from broker.cli.root import CommandError


@click.group()
def broker() -> None:
    """Single brokers of a cluster."""


@broker.command()
@click.argument("node_id", type=click.IntRange(0), metavar="ID")
@click.option(
    "--dry-run", is_flag=True, help="Print the plan, as of kafka-reassign-partitions, and do nothing."
)
@bootstrap_option
def decommission(node_id: int, dry_run: bool, bootstrap_server: str) -> None:
    """Move all partitions away from a broker, wait for that, and unregister it.

    If it is interrupted, run it again: it goes on with what is left. Afterwards stop the broker for good, and
    take it out of controller.quorum.voters of the others: it votes on the metadata until they are restarted.
    """
    from broker.cli.cluster_state import look
    from broker.cli.moves import alter, to_json, wait
    from broker.cli.plans import PlanError, without
    from broker.cli.wire_client import WireClient, check
    from protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse

    while True:
        # Again after each move: topics may have been created there meanwhile.
        state = look(bootstrap_server)
        if node_id not in state.brokers:
            raise CommandError(f"there is no broker {node_id}")
        current = {name: x.replicas for name, x in state.partitions.items()}
        others = [other for other in state.alive if other != node_id]
        try:
            plan = without(current, node_id, others)
        except PlanError as error:
            raise CommandError(
                f"{error}; `varve cluster reassign generate --replication-factor` plans for fewer"
            ) from None
        if dry_run:
            click.echo(to_json(plan))
            return
        if not plan:
            break
        refused = alter(bootstrap_server, plan)
        if refused:
            (topic, number), why = min(refused.items())
            raise CommandError(f"{len(refused)} partitions cannot be moved; {topic}-{number}: {why}")
        total = len(plan)
        wait(bootstrap_server, list(plan), lambda left, total=total: _tell(total - left, total))  # type: ignore[misc]
    wait(bootstrap_server, list(current), lambda left: click.echo(f"{left} partitions still move."))
    question = UnregisterBrokerRequest(broker_id=node_id)
    answer = WireClient(bootstrap_server).ask(question, 0, UnregisterBrokerResponse)
    check(answer.error_code, answer.error_message)
    click.echo(f"Broker {node_id} holds nothing and is unregistered. It can be stopped for good.")


def _tell(moved: int, total: int) -> None:
    click.echo(f"{moved} of {total} partitions have moved.")
