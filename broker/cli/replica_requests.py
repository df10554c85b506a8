"""Requests that each broker answers for its own replicas: who has them, and asking all of these brokers at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from broker.cli.progress import INTERVAL_S, Progress
from broker.cli.root import CommandError
from broker.cli.wire_client import WireClient, error_text
from protocol.errors import ErrorCode, ProtocolError
from protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)

T = TypeVar("T")

_METADATA_VERSION = 9


class ReplicaPlace(NamedTuple):
    topic: str
    partition: int
    broker: int
    leader: int
    """-1: nobody leads the partition."""


@dataclass(frozen=True)
class Placement:
    """Replicas of partitions, by topic, partition and broker, and where clients reach the brokers that are there."""

    places: Sequence[ReplicaPlace]
    addresses: dict[int, tuple[str, int]]

    def ask_brokers(
        self, ask: Callable[[tuple[str, int], dict[str, list[int]]], T]
    ) -> dict[int, T | OSError | ProtocolError]:
        """What `ask` returns or raises for each broker with a replica, by the broker's id. It is given the broker's
        address and the partitions by topic. On a terminal it is shown how many brokers have answered."""
        named: dict[int, dict[str, list[int]]] = {}
        for place in self.places:
            named.setdefault(place.broker, {}).setdefault(place.topic, []).append(place.partition)

        def answer(node_id: int) -> T | OSError | ProtocolError:
            if node_id not in self.addresses:
                return OSError("the broker is away")
            try:
                return ask(self.addresses[node_id], named[node_id])
            except (OSError, ProtocolError) as error:
                return error

        with ThreadPoolExecutor(len(named) or 1) as pool, Progress("brokers have answered") as progress:
            answers = {node_id: pool.submit(answer, node_id) for node_id in named}
            while wait(answers.values(), INTERVAL_S).not_done:
                answered = sum(each.done() for each in answers.values())
                progress.show(answered, time.monotonic(), len(answers))
            return {node_id: each.result() for node_id, each in answers.items()}


def find_replicas(client: WireClient, names: Iterable[str], partitions: Sequence[int] | None) -> Placement:
    """All replicas of the wanted partitions; `partitions` None: of all. Raises CommandError where there is no such
    topic or partition."""
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in dict.fromkeys(names)],
        allow_auto_topic_creation=False,
    )
    metadata = client.ask(request, _METADATA_VERSION, MetadataResponse)
    addresses = {broker.node_id: (broker.host, broker.port) for broker in metadata.brokers}
    places = [place for topic in metadata.topics for place in _places(topic, partitions)]
    return Placement(sorted(places), addresses)


def _places(topic: MetadataResponseTopic, partitions: Sequence[int] | None) -> Iterable[ReplicaPlace]:
    assert topic.name is not None
    if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise CommandError(f"Topic '{topic.name}' does not exist")
    if topic.error_code != ErrorCode.NONE:
        raise CommandError(f"Topic '{topic.name}': {error_text(topic.error_code, None)}")
    by_index = {each.partition_index: each for each in topic.partitions}
    for index in sorted(by_index) if partitions is None else partitions:
        if index not in by_index:
            raise CommandError(f"Topic '{topic.name}' has no partition {index}")
        for node_id in by_index[index].replica_nodes:
            yield ReplicaPlace(topic.name, index, node_id, by_index[index].leader_id)
