"""`varve cluster elect-leaders`: preferred replica election."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from broker.cli.bootstrap import bootstrap_option
from broker.cli.output import format_option, print_list
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
    rows = [
        {
            "topic": topic.topic,
            "partition": x.partition_id,
            "elected": x.error_code == ErrorCode.NONE,
            "error": None if x.error_code == ErrorCode.NONE else error_text(x.error_code, x.error_message),
        }
        for topic in answer.replica_election_results
        for x in topic.partition_result
        if x.error_code != ErrorCode.ELECTION_NOT_NEEDED
    ]
    if shape == "json":
        print_list("partitions", rows)
    elif not rows:
        click.echo("Every partition is led by its preferred replica.")
    else:
        for row in rows:
            click.echo(f"{row['topic']}-{row['partition']}: {row['error'] or 'elected'}")
    sys.exit(not all(row["elected"] for row in rows))
