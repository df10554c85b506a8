"""What clients are shown of the cluster: brokers, leaders, replicas. Reads only."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from broker.metadata.topic_checks import check_name
from protocol.errors import ErrorCode, KafkaError
from storage.log_types import GroupKey

if TYPE_CHECKING:
    from broker.controller.service import MetadataService
    from broker.membership.cluster import Cluster
    from broker.metadata.ids import NodeIdentity
    from broker.metadata.leaders import Leadership, LeaderTable
    from broker.metadata.records import TopicRecord
    from broker.partitions.publisher import Publisher
    from broker.replication.replica import Replica
    from broker.replication.replicas import Replicas


class PartitionState(NamedTuple):
    """What clients are shown of a partition."""

    #: -1: no live broker leads it and serves.
    leader: int
    #: -1: no leader has been announced yet.
    epoch: int
    #: The leader's node shows the replicas that keep up. Other nodes show the replicas that are alive.
    in_sync: list[int]
    offline: list[int]


class ClusterView:
    """Look-ups over the committed image and the table of leaders."""

    def __init__(
        self,
        me: NodeIdentity,
        metadata: MetadataService,
        leaders: LeaderTable,
        cluster: Cluster,
        replicas: Replicas,
        publisher: Publisher,
    ) -> None:
        self._me = me
        self._metadata = metadata
        self._leaders = leaders
        self._cluster = cluster
        self._replicas = replicas
        self._publisher = publisher

    @property
    def cluster_id(self) -> str | None:
        return self._cluster.cluster_id

    @property
    def leader_changes(self) -> int:
        """Changes with each change of the leader table."""
        return self._leaders.changes

    # -- brokers -----------------------------------------------------------------------------------------

    def live_brokers(self, listener: str) -> list[tuple[int, str, int]]:
        """(node id, host, port) of every broker that is connected now, as this listener's clients reach it.

        The controller is always among them: clients wait for a controller whose address they do not know
        (librdkafka until the request times out). A node that sees no majority, such as one that was stopped for a
        while, is probably cut off itself, and shows all brokers.
        """
        brokers = self._metadata.image.brokers
        alive = [node_id for node_id in brokers if self._is_alive(node_id)]
        if 2 * len(alive) <= len(brokers):
            return self.all_brokers(listener)
        if (controller := self._leaders.controller_id()) in brokers and controller not in alive:
            alive.append(controller)
        return [broker for broker in self.all_brokers(listener) if broker[0] in alive]

    def all_brokers(self, listener: str) -> list[tuple[int, str, int]]:
        """As `live_brokers`, for every registered broker that has such a listener."""
        brokers = self._metadata.image.brokers
        return [
            (node_id, *brokers[node_id].endpoints[listener])
            for node_id in sorted(brokers)
            if listener in brokers[node_id].endpoints
        ]

    def controller(self) -> int:
        """The id of the broker to which clients send administrative requests; -1 if no controller is known. It is the
        controller, or any live broker if the controller was unregistered and only votes."""
        controller, brokers = self._leaders.controller_id(), self._metadata.image.brokers
        if controller < 0 or controller in brokers:
            return controller
        return next((node_id for node_id in sorted(brokers) if self._is_alive(node_id)), -1)

    def endpoint_of(self, node_id: int, listener: str) -> tuple[str, int]:
        """Where clients of a listener reach a broker; ("", -1) if it has no such listener."""
        broker = self._metadata.image.brokers.get(node_id)
        endpoint = None if broker is None else broker.endpoints.get(listener)
        return ("", -1) if endpoint is None else (endpoint.host, endpoint.port)

    def alive_brokers(self) -> frozenset[int]:
        """The registered brokers that are connected now, this one included."""
        return frozenset(
            node_id
            for node_id, broker in self._metadata.image.brokers.items()
            if self._cluster.is_alive(broker)
        )

    def _is_alive(self, node_id: int) -> bool:
        broker = self._metadata.image.brokers.get(node_id)
        return broker is not None and self._cluster.is_alive(broker)

    # -- topics and leaders ------------------------------------------------------------------------------

    def topic_name(self, name: str, topic_id: UUID) -> str:
        """The name of the topic that a request names by its name or by its id; "" for an unknown id."""
        if name:
            return name
        topic = self._metadata.image.topics.get(topic_id)
        return "" if topic is None else topic.name

    def leader_of(self, topic: str, partition: int) -> tuple[int, int]:
        """(node id or -1, leader epoch or -1)."""
        record = self._metadata.image.topic_named(topic)
        return (-1, -1) if record is None else self.leader_of_id(record.topic_id, partition)

    def leader_of_id(self, topic_id: UUID, partition: int) -> tuple[int, int]:
        """(node id or -1, leader epoch or -1). A leader is shown only if it serves."""
        return _served_by(self._leaders.get(topic_id, partition), self._is_alive)

    def partition_states(self, topic: TopicRecord, numbers: Iterable[int]) -> list[PartitionState]:
        """The states of these partitions of a topic. Look-ups that are the same for all are done once, because there
        may be thousands of partitions."""
        alive = self.alive_brokers()
        leaderships = self._leaders.of_topic(topic.topic_id)
        own_id = self._me.node_id
        states: list[PartitionState] = []
        for number in numbers:
            leader, epoch = _served_by(leaderships.get(number), alive.__contains__)
            replicas = topic.partitions[number].replicas
            here = [node_id for node_id in replicas if node_id in alive]
            offline = [node_id for node_id in replicas if node_id not in alive]
            if leader < 0:
                in_sync = []
            elif leader != own_id:
                in_sync = here
            else:
                keeping_up = self._keeping_up(GroupKey(topic.topic_id, number))
                in_sync = [node_id for node_id in here if node_id in keeping_up]
            states.append(PartitionState(leader, epoch, in_sync, offline))
        return states

    def _keeping_up(self, key: GroupKey) -> set[int]:
        """The replicas of a partition that keep up, if this node leads it; else an empty set."""
        replica = self._replicas.by_key.get(key)
        if replica is None or not replica.is_leader:
            return set()
        return {
            voter.node_id
            for voter in replica.group.in_sync(self._replicas.now(), self._replicas.replica_lag_time_max_s)
            if self._holds_directory(voter.node_id, voter.directory_id)
        }

    def _holds_directory(self, node_id: int, directory_id: bytes) -> bool:
        """Whether a node still has this data directory. A node that restarts with an empty disk is alive, but it is not
        the voter that kept up before."""
        if node_id == self._me.node_id:
            return directory_id == self._me.directory_id.bytes
        connected = self._cluster.directory_of(node_id)
        return connected is not None and connected.bytes == directory_id

    # -- replicas, and why there is none -----------------------------------------------------------------

    def replica_named(self, topic: str, partition: int) -> Replica:
        """The replica on this node, leader or not. Raises KafkaError if there is none."""
        replica = self._replicas.by_name.get((topic, partition))
        if replica is None:
            raise KafkaError(self.why_no_replica(topic, partition))
        return replica

    def led_replica(self, topic: str, partition: int) -> Replica | None:
        """The replica of this partition if this node leads it and serves. Reads from it have to be confirmed
        (`Reads`)."""
        replica = self._replicas.by_name.get((topic, partition))
        return replica if replica is not None and replica.is_serving else None

    def replica_of_id(self, topic_id: UUID, partition: int) -> Replica:
        """As `replica_named`. The metadata log has a topic id too, but clients cannot read it."""
        replica = self._replicas.by_key.get(GroupKey(topic_id, partition))
        if replica is not None and replica is not self._metadata.replica:
            return replica
        record = self._metadata.image.topics.get(topic_id)
        if record is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        raise KafkaError(self.why_no_replica(record.name, partition))

    def why_no_replica(self, topic: str, partition: int) -> ErrorCode:
        """The error code for a partition that has no replica on this node. A topic that exists is never "unknown": the
        client would stop using it (client-behaviour.md B.8)."""
        record = self._metadata.image.topic_named(topic)
        if record is None or not 0 <= partition < len(record.partitions):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        is_opening = self._publisher.is_opening(GroupKey(record.topic_id, partition))
        if self._me.node_id in record.partitions[partition].replicas and not is_opening:
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NOT_LEADER_OR_FOLLOWER

    def why_no_topic(self, name: str) -> ErrorCode:
        try:
            check_name(name)
        except KafkaError as error:
            return error.code
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _served_by(known: Leadership | None, is_alive: Callable[[int], bool]) -> tuple[int, int]:
    """(node id or -1, leader epoch or -1). A leader is shown only if it serves."""
    if known is None:
        return -1, -1
    if known.node_id is None or not known.established or not is_alive(known.node_id):
        return -1, known.term
    return known.node_id, known.term
