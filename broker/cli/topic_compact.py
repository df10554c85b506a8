"""`varve topic compact`: have every replica of topics compacted now."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass

import click

from broker.cli.clients import TIMEOUT_S, bootstrap_option, format_option
from broker.cli.root import CommandError
from broker.cli.topic_records import partitions_option
from broker.cli.wire_client import WireClient, ask_at, error_text
from protocol.errors import ErrorCode, ProtocolError
from protocol.messages.compact_partitions import (
    CompactPartitionsRequest,
    CompactPartitionsResponse,
    CompactTopic,
)
from protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)

_METADATA_VERSION = 9
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
@click.argument("names", nargs=-1, required=True, metavar="TOPIC...")
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
    client = WireClient(bootstrap_server)
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in dict.fromkeys(names)],
        allow_auto_topic_creation=False,
    )
    metadata = client.ask(request, _METADATA_VERSION, MetadataResponse)
    addresses = {broker.node_id: (broker.host, broker.port) for broker in metadata.brokers}
    by_broker: dict[int, list[Compacted]] = {}
    for replica in _replicas(metadata.topics, partitions):
        by_broker.setdefault(replica.broker, []).append(replica)
    with ThreadPoolExecutor(len(by_broker) or 1) as pool:
        asked = [
            pool.submit(_ask, addresses.get(node_id), replicas, wait=wait)
            for node_id, replicas in by_broker.items()
        ]
        for each in asked:
            each.result()
    found = sorted(
        (replica for replicas in by_broker.values() for replica in replicas),
        key=lambda replica: (replica.topic, replica.partition, replica.broker),
    )
    if shape == "json":
        click.echo(json.dumps([asdict(replica) for replica in found]))
    else:
        for replica in found:
            click.echo(replica.line())
    if any(replica.error is not None for replica in found):
        raise CommandError("not every replica is compacted")


def _replicas(
    topics: Iterable[MetadataResponseTopic], partitions: Sequence[int] | None
) -> Iterator[Compacted]:
    """All replicas of the wanted partitions. Raises CommandError where there is no such topic or partition."""
    for topic in topics:
        assert topic.name is not None
        if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise CommandError(f"Topic '{topic.name}' does not exist")
        if topic.error_code != ErrorCode.NONE:
            raise CommandError(f"Topic '{topic.name}': {error_text(topic.error_code, None)}")
        by_index = {each.partition_index: each for each in topic.partitions}
        for index in sorted(by_index) if partitions is None else partitions:
            if index not in by_index:
                raise CommandError(f"Topic '{topic.name}' has no partition {index}")
            for node_id in sorted(by_index[index].replica_nodes):
                yield Compacted(topic.name, index, node_id)


def _ask(address: tuple[str, int] | None, replicas: list[Compacted], *, wait: bool) -> None:
    """Ask one broker about its replicas, and note in them what it answers."""
    by_place = {(replica.topic, replica.partition): replica for replica in replicas}
    named: dict[str, list[int]] = {}
    for topic, partition in by_place:
        named.setdefault(topic, []).append(partition)
    request = CompactPartitionsRequest(
        topics=[CompactTopic(name=topic, partition_indexes=indexes) for topic, indexes in named.items()],
        timeout_ms=_LONGEST_MS if wait else 0,
    )
    try:
        if address is None:
            raise OSError("the broker is away")
        answer = ask_at(*address, request, 0, CompactPartitionsResponse, None if wait else TIMEOUT_S)
    except (OSError, ProtocolError) as error:
        for replica in replicas:
            replica.error = f"no answer: {error}"
        return
    for topic_answer in answer.topics:
        for each in topic_answer.partitions:
            replica = by_place[topic_answer.name, each.partition_index]
            if each.error_code != ErrorCode.NONE:
                replica.error = error_text(each.error_code, each.error_message)
            elif wait:
                replica.bytes_before, replica.bytes_after = each.bytes_before, each.bytes_after
                replica.elapsed_ms = each.elapsed_ms
                replica.cleaned_end_offset, replica.limit = each.cleaned_end_offset, each.limit
