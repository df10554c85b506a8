"""`varve cluster elect-leaders`: preferred replica election."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import click

from broker.cli.clients import bootstrap_option, format_option
from broker.cli.root import TIMEOUT_S

if TYPE_CHECKING:
    from protocol.messages.elect_leaders import ElectLeadersResponse, TopicPartitions

_VERSION = 2


def elect_preferred(
    bootstrap_server: str, wanted: list[TopicPartitions] | None, timeout_s: float
) -> ElectLeadersResponse:
    """Have preferred replicas elected; of all partitions, if `wanted` is None. What is not led by then has
    REQUEST_TIMED_OUT. Raises CommandError."""
    from broker.cli.wire_client import WireClient
    from protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse

    question = ElectLeadersRequest(topic_partitions=wanted, timeout_ms=int(1000 * timeout_s))
    client = WireClient(bootstrap_server)
    return client.ask(question, _VERSION, ElectLeadersResponse, timeout_s + TIMEOUT_S)


@click.command(name="elect-leaders")
@click.option("--topic", "topics", multiple=True, help="Only partitions of this topic. Repeatable.")
@click.option(
    "--timeout", "timeout_s", type=click.IntRange(1), default=20, show_default=True, help="Seconds to wait."
)
@bootstrap_option
@format_option
def elect_leaders(topics: tuple[str, ...], timeout_s: int, bootstrap_server: str, shape: str) -> None:
    """Make the preferred replica of each partition its leader. That is the first replica of the partition's list.

    Nodes do this by themselves, too (leader.imbalance.check.interval.seconds). Exit code 1 if a preferred replica
    cannot lead.
    """
    from broker.cli.cluster_state import describe_cluster, select_partitions
    from broker.cli.wire_client import check_error, error_text
    from protocol.errors import ErrorCode
    from protocol.messages.elect_leaders import TopicPartitions

    wanted = None
    if topics:
        names = select_partitions(describe_cluster(bootstrap_server), topics)
        wanted = [
            TopicPartitions(topic=topic, partitions=[number for name, number in names if name == topic])
            for topic in topics
        ]
    answer = elect_preferred(bootstrap_server, wanted, timeout_s)
    check_error(answer.error_code, None)
    results = {
        f"{topic.topic}-{x.partition_id}": (ErrorCode(x.error_code), x.error_message)
        for topic in answer.replica_election_results
        for x in topic.partition_result
        if x.error_code != ErrorCode.ELECTION_NOT_NEEDED
    }
    if shape == "json":
        click.echo(json.dumps({name: code.name for name, (code, _) in results.items()}))
    elif not results:
        click.echo("Every partition is led by its preferred replica.")
    else:
        for name, (code, message) in results.items():
            click.echo(f"{name}: {'elected' if code == ErrorCode.NONE else error_text(code, message)}")
    sys.exit(any(code != ErrorCode.NONE for code, _ in results.values()))
