"""The state of a cluster as its brokers describe it: brokers, replicas, leaders, and which replicas are in sync."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from broker.cli.root import CommandError
from broker.cli.wire_client import WireClient, ask_at, check_error
from protocol.errors import ProtocolError
from protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from protocol.messages.metadata import MetadataRequest, MetadataResponse

#: Topic and number.
Partition = tuple[str, int]

#: A broker that does not answer for this long counts as down.
BROKER_TIMEOUT_S = 3.0
_DESCRIBE_CLUSTER_VERSION = 2
_METADATA_VERSION = 8


@dataclass
class PartitionState:
    #: Node ids, the preferred leader first.
    replicas: list[int]
    #: None: nobody leads it.
    leader: int | None
    in_sync: list[int]


@dataclass
class ClusterState:
    cluster_id: str
    #: None: no controller is known.
    controller: int | None
    #: Node id -> (host, port), alive or not.
    brokers: dict[int, tuple[str, int]]
    #: Brokers that are registered and do not answer.
    down: list[int]
    partitions: dict[Partition, PartitionState] = field(default_factory=dict)

    @property
    def alive(self) -> list[int]:
        return [node_id for node_id in self.brokers if node_id not in self.down]

    @property
    def leaderless(self) -> list[Partition]:
        return [name for name, state in self.partitions.items() if state.leader is None]

    @property
    def under_replicated(self) -> list[Partition]:
        return [
            name
            for name, state in self.partitions.items()
            if state.leader is not None and len(state.in_sync) < len(state.replicas)
        ]


def describe_cluster(bootstrap_server: str) -> ClusterState:
    """Ask every broker, because only the leader of a partition knows which replicas are in sync. Raises CommandError if
    none answers."""
    question = DescribeClusterRequest(include_fenced_brokers=True)
    described = WireClient(bootstrap_server).ask(question, _DESCRIBE_CLUSTER_VERSION, DescribeClusterResponse)
    check_error(described.error_code, described.error_message)
    state = ClusterState(
        cluster_id=described.cluster_id,
        controller=described.controller_id if described.controller_id >= 0 else None,
        brokers={broker.broker_id: (broker.host, broker.port) for broker in described.brokers},
        down=[broker.broker_id for broker in described.brokers if broker.is_fenced],
    )
    for node_id in state.alive:
        try:
            address = state.brokers[node_id]
            everything = MetadataRequest(topics=None, allow_auto_topic_creation=False)
            metadata = ask_at(*address, everything, _METADATA_VERSION, MetadataResponse, BROKER_TIMEOUT_S)
            _add_partitions(state, node_id, metadata)
        except (OSError, ProtocolError):
            state.down.append(node_id)
    for partition in state.partitions.values():
        # The other brokers may not have noticed yet that the leader is down.
        partition.leader = None if partition.leader in state.down else partition.leader
    state.down.sort()
    return state


def _add_partitions(state: ClusterState, node_id: int, metadata: MetadataResponse) -> None:
    for topic in metadata.topics:
        for found in topic.partitions:
            name = (topic.name or "", found.partition_index)
            leader = found.leader_id if found.leader_id >= 0 else None
            known = state.partitions.get(name)
            if known is None or leader == node_id or known.leader is None:
                state.partitions[name] = PartitionState(found.replica_nodes, leader, found.isr_nodes)


def select_partitions(state: ClusterState, topics: Iterable[str]) -> dict[Partition, PartitionState]:
    """The partitions of these topics, or all if none is named. Raises CommandError if a topic does not exist."""
    wanted = list(topics)
    known = {topic for topic, _ in state.partitions}
    for topic in wanted:
        if topic not in known:
            raise CommandError(f"there is no topic {topic}")
    return {
        name: state.partitions[name] for name in sorted(state.partitions) if not wanted or name[0] in wanted
    }
