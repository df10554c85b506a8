"""`varve cluster info`: the cluster, its brokers and its topics at a glance, as `rpk cluster info` shows them."""

from __future__ import annotations

import click

from broker.cli.bootstrap import bootstrap_option
from broker.cli.broker import broker_rows, print_brokers
from broker.cli.output import format_option, print_list
from broker.cli.tables import print_table
from broker.metadata.ids import INTERNAL_TOPICS


@click.command()
@bootstrap_option
@format_option
def info(bootstrap_server: str, shape: str) -> None:
    """Show the id, the brokers and the topics of a cluster. The controller has a *."""
    from broker.cli.cluster_state import describe_cluster

    state = describe_cluster(bootstrap_server)
    brokers = broker_rows(state)
    replicas: dict[str, list[int]] = {}
    for (name, _), partition in sorted(state.partitions.items()):
        if name not in INTERNAL_TOPICS:
            replicas.setdefault(name, []).append(len(partition.replicas))
    topics = [
        {"topic": name, "partition_count": len(counts), "replication_factor": max(counts)}
        for name, counts in replicas.items()
    ]
    if shape == "json":
        print_list(
            "brokers", brokers, cluster_id=state.cluster_id, controller_id=state.controller, topics=topics
        )
        return
    _print_title("cluster")
    click.echo(state.cluster_id)
    click.echo()
    _print_title("brokers")
    print_brokers(brokers)
    if topics:
        click.echo()
        _print_title("topics")
        print_table(("NAME", "PARTITIONS", "REPLICAS"), [list(row.values()) for row in topics])


def _print_title(text: str) -> None:
    click.echo(text.upper())
    click.echo("=" * len(text))
