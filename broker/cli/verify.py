"""`varve verify replicas`: have the leaders of a topic compare its replicas."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field

import click

from broker.cli.bootstrap import bootstrap_option
from broker.cli.completion import complete_topic
from broker.cli.output import format_option, print_list
from broker.cli.replica_requests import Placement, find_replicas
from broker.cli.root import CommandError
from broker.cli.topic_records import partitions_option
from broker.cli.wire_client import WireClient, ask_at, error_text
from protocol.errors import ErrorCode
from protocol.messages.verify_replicas import (
    VerifiedReplica,
    VerifyPartition,
    VerifyReplicasRequest,
    VerifyReplicasResponse,
    VerifyTopic,
)

_LONGEST_MS = 2**31 - 1
#: No replica differs, but some could not be compared.
INCOMPLETE_EXIT_CODE = 10


@dataclass
class Replica:
    broker: int
    not_compared: str | None = None
    like: int | None = None
    """The first broker whose replica says the same."""
    first_offset: int | None = None
    """Of the range with the first difference from the leader."""
    end_offset: int | None = None
    records_of_leader: int | None = None
    records: int | None = None

    @classmethod
    def of(cls, answer: VerifiedReplica) -> Replica:
        if answer.not_compared:
            return cls(answer.node_id, answer.not_compared)
        if answer.first_offset < 0:
            return cls(answer.node_id, like=answer.like)
        return cls(
            answer.node_id,
            None,
            answer.like,
            answer.first_offset,
            answer.end_offset,
            answer.records_of_leader,
            answer.records,
        )


@dataclass
class Verified:
    """What became of one partition."""

    topic: str
    partition: int
    leader: int | None = None
    error: str | None = None
    start_offset: int | None = None
    end_offset: int | None = None
    is_by_key: bool | None = None
    records: int | None = None
    replicas: list[Replica] = field(default_factory=list)

    def note(self, answer: VerifyPartition) -> None:
        if answer.error_code != ErrorCode.NONE:
            self.error = error_text(answer.error_code, answer.error_message)
            return
        self.start_offset, self.end_offset = answer.start_offset, answer.end_offset
        self.is_by_key, self.records = answer.is_by_key, answer.records
        self.replicas = [Replica.of(each) for each in answer.replicas]

    @property
    def differs(self) -> bool:
        return any(replica.first_offset is not None for replica in self.replicas)

    @property
    def is_incomplete(self) -> bool:
        return self.error is not None or any(replica.not_compared for replica in self.replicas)

    def line(self) -> str:
        place = f"{self.topic}-{self.partition}"
        if self.error is not None:
            return f"{place}\tnot compared: {self.error}"
        unit = "records" if self.is_by_key else "batches"
        compared = f"offsets: {self.start_offset} to {self.end_offset}\t{unit}: {self.records}"
        return "\t".join([place, compared, *self._findings()])

    def _findings(self) -> Iterator[str]:
        for first in sorted({replica.like for replica in self.replicas if replica.like is not None}):
            equal = sorted(replica.broker for replica in self.replicas if replica.like == first)
            if len(equal) > 1:
                yield f"replicas equal: {', '.join(map(str, equal))}"
        for replica in self.replicas:
            if replica.first_offset is not None:
                yield self._difference(replica)
            elif replica.not_compared:
                yield f"broker {replica.broker} not compared: {replica.not_compared}"

    def _difference(self, replica: Replica) -> str:
        assert replica.first_offset is not None and replica.end_offset is not None
        where = f"offset {replica.first_offset}"
        if replica.end_offset - replica.first_offset > 1:
            where = f"an offset from {replica.first_offset} to {replica.end_offset - 1}"
        unit = "records" if self.is_by_key else "batches"
        return (
            f"broker {replica.broker} differs from leader {self.leader} at {where}"
            f" ({unit} there: {replica.records}, at the leader: {replica.records_of_leader})"
        )


@click.group()
def verify() -> None:
    """Check that the replicas of a topic say the same."""


@verify.command()
@click.argument("name", metavar="TOPIC", shell_complete=complete_topic)
@partitions_option
@bootstrap_option
@format_option
def replicas(name: str, partitions: tuple[int, ...] | None, bootstrap_server: str, shape: str) -> None:
    """Compare what the replicas of a topic hold.

    The leader of each partition compares its replica with all others, up to where every transaction has ended. Of a
    compacted topic the newest record of each key is compared, so it does not matter which replica has compacted how
    far. The whole logs are read for that. There is a line for each partition.

    Exits with 1 if replicas differ, and with 10 if none differs, but some could not be compared.
    """
    placement = find_replicas(WireClient(bootstrap_server), [name], partitions)
    found = _verified(placement)
    if shape == "json":
        print_list("partitions", [asdict(partition) for partition in found])
    else:
        for partition in found:
            click.echo(partition.line())
    if any(partition.differs for partition in found):
        raise CommandError("replicas differ")
    if any(partition.is_incomplete for partition in found):
        click.echo("varve: not every replica was compared", err=True)
        raise click.exceptions.Exit(INCOMPLETE_EXIT_CODE)


def _verified(placement: Placement) -> list[Verified]:
    found = {
        place[:2]: Verified(place.topic, place.partition, place.leader if place.leader >= 0 else None)
        for place in placement.places
    }
    led = Placement([each for each in placement.places if each.broker == each.leader], placement.addresses)
    answers = led.ask_brokers(_ask)
    for partition in found.values():
        if partition.leader is None:
            partition.error = "it has no leader"
            continue
        answer = answers[partition.leader]
        if not isinstance(answer, VerifyReplicasResponse):
            partition.error = f"its leader {partition.leader} does not answer: {answer}"
            continue
        for topic in answer.topics:
            for each in topic.partitions:
                if (topic.name, each.partition_index) == (partition.topic, partition.partition):
                    partition.note(each)
    return list(found.values())


def _ask(address: tuple[str, int], named: dict[str, list[int]]) -> VerifyReplicasResponse:
    topics = [VerifyTopic(name=topic, partition_indexes=indexes) for topic, indexes in named.items()]
    request = VerifyReplicasRequest(topics=topics, timeout_ms=_LONGEST_MS)
    return ask_at(*address, request, 0, VerifyReplicasResponse, None)
