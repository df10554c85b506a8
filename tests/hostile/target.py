"""The cluster that is attacked, and how its nodes are reached."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from uuid import UUID

from protocol.errors import ErrorCode
from protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.hostile.local_nodes import LocalNode, pid_that_listens
from tests.integration.harness import eventually
from tests.integration.wire import Wire

_METADATA_VERSION = 12


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Address:
        """Raises ValueError."""
        host, separator, port = text.rpartition(":")
        if not (separator and host):
            raise ValueError(f"{text}: not HOST:PORT")
        return cls(host, int(port))

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Target:
    """`nodes`: by node id, as clients reach them. `peers`: where the nodes listen for each other, as far as known."""

    nodes: dict[int, Address]
    peers: dict[int, Address]

    @property
    def bootstrap(self) -> str:
        return ",".join(str(address) for address in self.nodes.values())

    def connect(self, node_id: int, timeout_s: float = 20, receive_buffer_bytes: int | None = None) -> Wire:
        node = self.nodes[node_id]
        return Wire(node.port, timeout_s, node.host, receive_buffer_bytes)

    def connections(self, count: int, timeout_s: float = 20) -> list[Wire]:
        """So many, to all nodes in turn."""
        ids = list(self.nodes)
        return [self.connect(ids[number % len(ids)], timeout_s) for number in range(count)]

    def metadata(self, *topics: str) -> MetadataResponse:
        """Of these topics and all brokers, from any node that answers."""
        return self._metadata([MetadataRequestTopic(topic_id=UUID(int=0), name=name) for name in topics])

    def _metadata(self, topics: list[MetadataRequestTopic] | None) -> MetadataResponse:
        """Without `topics`: of all of them."""
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        for node_id in self.nodes:
            try:
                with self.connect(node_id, 5) as wire:
                    answer: MetadataResponse = wire.call(request, _METADATA_VERSION)
                    return answer
            except OSError:
                continue
        raise ConnectionError("no node answers")

    def topics(self) -> set[str]:
        """Those of clients, not the cluster's own."""
        return {topic.name for topic in self._metadata(None).topics if topic.name and not topic.is_internal}

    def delete(self, topics: Iterable[str]) -> None:
        """Those that are there, as far as it can be done now."""
        wanted = [DeleteTopicState(name=name) for name in topics]
        with self.connect(next(iter(self.nodes))) as wire:
            wire.call(DeleteTopicsRequest(topics=wanted, timeout_ms=10_000), 6)

    def leaders(self, topic: str) -> dict[int, tuple[int, int]]:
        """Partition -> (node id, leader epoch)."""
        found = self.metadata(topic).topics[0].partitions
        return {each.partition_index: (each.leader_id, each.leader_epoch) for each in found}

    def leader_of(self, topic: str, partition: int = 0) -> int:
        return self.leaders(topic)[partition][0]

    def create(self, topic: str, partitions: int, **configs: str) -> UUID:
        """Make a topic, or take the one that is there. Returns its id."""
        wanted = CreatableTopic(
            name=topic,
            num_partitions=partitions,
            replication_factor=min(3, len(self.nodes)),
            configs=[
                CreatableTopicConfig(name=name.replace("_", "."), value=configs[name]) for name in configs
            ],
        )
        with self.connect(next(iter(self.nodes))) as wire:
            answer = wire.call(CreateTopicsRequest(topics=[wanted]), 7).topics[0]
        if answer.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            raise RuntimeError(f"{topic}: {ErrorCode(answer.error_code).name}: {answer.error_message}")

        def all_led() -> bool:
            leaders = self.leaders(topic)
            return len(leaders) >= partitions and all(node_id >= 0 for node_id, _ in leaders.values())

        eventually(all_led, f"leaders of {topic}")
        return self.metadata(topic).topics[0].topic_id

    def local_nodes(self) -> list[LocalNode]:
        """Those that run on this machine."""
        found = {node_id: pid_that_listens(address.port) for node_id, address in self.nodes.items()}
        return [LocalNode(node_id, pid) for node_id, pid in found.items() if pid is not None]

    def as_dict(self) -> dict[str, dict[int, str]]:
        return {
            field.name: {node_id: str(address) for node_id, address in getattr(self, field.name).items()}
            for field in dataclasses.fields(self)
        }

    @classmethod
    def from_dict(cls, known: dict[str, dict[str, str]]) -> Target:
        return cls(
            **{
                name: {int(node_id): Address.parse(text) for node_id, text in addresses.items()}
                for name, addresses in known.items()
            }
        )


def discover(bootstrap: Address, peers: list[Address] | None) -> Target:
    """Ask a node for all of them. Without `peers`, a node that listens for them one port higher, as those of `varve
    cluster up` do, is believed to be found there."""
    start = Target({-1: bootstrap}, {})
    nodes = {node.node_id: Address(node.host, node.port) for node in start.metadata().brokers}
    if peers is None:
        guessed = {node_id: Address(node.host, node.port + 1) for node_id, node in nodes.items()}
        found = {
            node_id: each for node_id, each in guessed.items() if pid_that_listens(each.port) is not None
        }
    else:
        found = dict(zip(nodes, peers, strict=False))
    return Target(dict(sorted(nodes.items())), dict(sorted(found.items())))
