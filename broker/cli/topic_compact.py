"""`varve topic compact`: have every replica of topics compacted now."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import click

from broker.cli.bootstrap import bootstrap_option
from broker.cli.completion import complete_topic
from broker.cli.output import format_option, print_list
from broker.cli.replica_requests import Placement, find_replicas
from broker.cli.root import TIMEOUT_S, CommandError
from broker.cli.topic_records import partitions_option
from broker.cli.wire_client import WireClient, ask_at, error_text
from protocol.errors import ErrorCode, ProtocolError
from protocol.messages.compact_partitions import (
    CompactPartition,
    CompactPartitionsRequest,
    CompactPartitionsResponse,
    CompactTopic,
)

_LONGEST_MS = 2**31 - 1


@dataclass
class Compacted:
    """What became of one replica."""

    topic: str
    partition: int
    broker: int
    error: str | None = None
    bytes_before: int | None = None
    bytes_after: int | None = None
    elapsed_ms: int | None = None
    cleaned_end_offset: int | None = None
    limit: str | None = None

    def note(self, answer: CompactPartition, *, wait: bool) -> None:
        if answer.error_code != ErrorCode.NONE:
            self.error = error_text(answer.error_code, answer.error_message)
        elif wait:
            self.bytes_before, self.bytes_after = answer.bytes_before, answer.bytes_after
            self.elapsed_ms = answer.elapsed_ms
            self.cleaned_end_offset, self.limit = answer.cleaned_end_offset, answer.limit

    def line(self) -> str:
        place = f"{self.topic}-{self.partition}\tbroker: {self.broker}"
        if self.error is not None:
            return f"{place}\terror: {self.error}"
        if self.bytes_before is None:
            return f"{place}\tbegun"
        done = f"bytes: {self.bytes_before} -> {self.bytes_after}\ttook: {self.elapsed_ms} ms"
        text = f"{place}\t{done}\tclean below: {self.cleaned_end_offset}"
        return f"{text}\tnot further: {self.limit}" if self.limit else text


@click.command()
@click.argument("names", nargs=-1, required=True, metavar="TOPIC...", shell_complete=complete_topic)
@partitions_option
@click.option("--wait", is_flag=True, help="Wait until the passes are over, and show what they did.")
@bootstrap_option
@format_option
def compact(
    names: tuple[str, ...],
    partitions: tuple[int, ...] | None,
    wait: bool,
    bootstrap_server: str,
    shape: str,
) -> None:
    """Compact topics now.

    Every replica is compacted on its own node, the active segment included, however little of it is dirty. What
    min.compaction.lag.ms protects stays, and so does what a replica that is away still needs. There is a line for each
    replica.
    """
    placement = find_replicas(WireClient(bootstrap_server), names, partitions)

    def ask(address: tuple[str, int], named: dict[str, list[int]]) -> CompactPartitionsResponse:
        return ask_at(
            *address, _request(named, wait=wait), 0, CompactPartitionsResponse, None if wait else TIMEOUT_S
        )

    found = _outcomes(placement, placement.ask_brokers(ask), wait=wait)
    if shape == "json":
        print_list("replicas", [asdict(replica) for replica in found])
    else:
        for replica in found:
            click.echo(replica.line())
    if any(replica.error is not None for replica in found):
        raise CommandError("not every replica is compacted")


def _request(named: dict[str, list[int]], *, wait: bool) -> CompactPartitionsRequest:
    topics = [CompactTopic(name=topic, partition_indexes=indexes) for topic, indexes in named.items()]
    return CompactPartitionsRequest(topics=topics, timeout_ms=_LONGEST_MS if wait else 0)


def _outcomes(
    placement: Placement,
    answers: dict[int, CompactPartitionsResponse | OSError | ProtocolError],
    *,
    wait: bool,
) -> list[Compacted]:
    by_place = {
        place[:3]: Compacted(place.topic, place.partition, place.broker) for place in placement.places
    }
    for node_id, answer in answers.items():
        if not isinstance(answer, CompactPartitionsResponse):
            for replica in by_place.values():
                if replica.broker == node_id:
                    replica.error = f"no answer: {answer}"
            continue
        for topic in answer.topics:
            for each in topic.partitions:
                by_place[topic.name, each.partition_index, node_id].note(each, wait=wait)
    return list(by_place.values())
