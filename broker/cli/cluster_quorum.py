"""`varve cluster quorum`: the metadata quorum. The rows are those of kafka-metadata-quorum."""

from __future__ import annotations

import base64

import click

from broker.cli.bootstrap import bootstrap_option
from broker.cli.output import as_objects, format_option, print_list

_VERSION = 2
_COLUMNS = (
    "NodeId",
    "DirectoryId",
    "LogEndOffset",
    "Lag",
    "LastFetchTimestamp",
    "LastCaughtUpTimestamp",
    "Status",
)


@click.command()
@bootstrap_option
@format_option
def quorum(bootstrap_server: str, shape: str) -> None:
    """Show the metadata quorum.

    The rows are its voters and observers. Times are in ms of the leader's clock.
    """
    from broker.cli.wire_client import WireClient, check_error
    from protocol.messages.describe_quorum import (
        DescribeQuorumRequest,
        DescribeQuorumResponse,
        RequestedPartition,
        RequestedTopic,
    )

    wanted = RequestedTopic(
        topic_name="__cluster_metadata", partitions=[RequestedPartition(partition_index=0)]
    )
    question = DescribeQuorumRequest(topics=[wanted])
    answer = WireClient(bootstrap_server).ask(question, _VERSION, DescribeQuorumResponse)
    check_error(answer.error_code, answer.error_message)
    found = answer.topics[0].partitions[0]
    check_error(found.error_code, found.error_message)
    leader_end = next(x.log_end_offset for x in found.current_voters if x.replica_id == found.leader_id)
    statuses = [
        (state, "Leader" if state.replica_id == found.leader_id else "Follower")
        for state in found.current_voters
    ] + [(state, "Observer") for state in found.observers]
    rows = [
        (
            state.replica_id,
            base64.urlsafe_b64encode(state.replica_directory_id.bytes).decode().rstrip("="),
            state.log_end_offset,
            leader_end - state.log_end_offset,
            state.last_fetch_timestamp_ms,
            state.last_caught_up_timestamp_ms,
            status,
        )
        for state, status in statuses
    ]
    if shape == "json":
        print_list(
            "replicas",
            as_objects(_COLUMNS, rows),
            leader_id=found.leader_id,
            leader_epoch=found.leader_epoch,
            high_watermark=found.high_watermark,
        )
        return
    click.echo(f"LeaderId:       {found.leader_id}")
    click.echo(f"LeaderEpoch:    {found.leader_epoch}")
    click.echo(f"HighWatermark:  {found.high_watermark}")
    widths = [max(len(str(row[i])) for row in (_COLUMNS, *rows)) for i in range(len(_COLUMNS))]
    for row in (_COLUMNS, *rows):
        click.echo("  ".join(f"{value:<{width}}" for value, width in zip(row, widths, strict=True)).rstrip())
