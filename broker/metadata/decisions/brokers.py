"""Who is a broker, and under which identities it is a target of its partitions once it has lost its disk or a log."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from uuid import UUID

from broker.metadata.decisions.common import changed_topics
from broker.metadata.image import MetadataImage
from broker.metadata.record_codec import (
    PARTITIONS_PER_STEP,
    MetadataRecordError,
    broker_tombstone,
    check_readable,
    encode,
)
from broker.metadata.records import BrokerRecord, KeyValue, PartitionAssignment
from broker.metadata.requests import Deciding, Decision, ReplicaRenewal
from protocol.errors import ErrorCode, KafkaError


class BrokerDecisions:
    def __init__(self, image: MetadataImage, is_alive: Callable[[BrokerRecord], bool]) -> None:
        self._image = image
        self._is_alive = is_alive

    def register(self, broker: BrokerRecord) -> Deciding[None]:
        """Record who a node is and where it listens; nothing where that is known already.

        A new directory id means that the old volume is lost: the target assignments of this node's replicas then
        name the new identity, and each partition's leader replaces the old one by it (replication.md
        section 3). Raises KafkaError: DUPLICATE_BROKER_REGISTRATION while the old directory is alive;
        INVALID_REGISTRATION for what no record could hold.
        """
        try:
            check_readable(broker)
        except MetadataRecordError as error:
            raise KafkaError(ErrorCode.INVALID_REGISTRATION, str(error)) from error
        old = self._image.brokers.get(broker.node_id)
        if old == broker:
            return Decision((), None)
        if old is not None and old.directory_id != broker.directory_id and self._is_alive(old):
            raise KafkaError(
                ErrorCode.DUPLICATE_BROKER_REGISTRATION,
                f"node {broker.node_id} is running with another data directory ({old.directory_id})",
            )
        records: list[KeyValue] = []
        if old is not None:
            # Also with the recorded directory: a change of leaders may have kept only the first topics of a
            # registration with another one, and then the old disk was put back.
            yield from self._add_moved(broker, records)
        # Last: where a change of leaders cuts this decision short, the broker registers again and gets the rest.
        return Decision((*records, encode(broker)), None)

    def unregister(self, node_id: int) -> Deciding[None]:
        """Remove a broker's registration. Raises KafkaError: BROKER_ID_NOT_REGISTERED; POLICY_VIOLATION while it holds
        a replica, or may still hold one that is being removed."""
        if node_id not in self._image.brokers:
            raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"there is no broker {node_id}")
        held = 0
        for topic in self._image.topics.values():
            for count, partition in enumerate(topic.partitions):
                held += node_id in partition.holders
                if count % PARTITIONS_PER_STEP == 0:
                    yield
        if held:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION, f"broker {node_id} still holds {held} partitions; move them first"
            )
        return Decision((broker_tombstone(node_id),), None)

    def renew_replicas(
        self, node_id: int, directory_id: UUID, renewals: Sequence[ReplicaRenewal]
    ) -> Deciding[None]:
        """Have the target name the new incarnations of replicas whose logs that broker discarded (quarantine).

        Stale renewals, and those of replicas that the node is not to hold any more, change nothing.
        Raises KafkaError(BROKER_ID_NOT_REGISTERED) where the directory is not the registered one.
        """
        broker = self._image.brokers.get(node_id)
        if broker is None or broker.directory_id != directory_id:
            raise KafkaError(
                ErrorCode.BROKER_ID_NOT_REGISTERED, f"node {node_id} with directory {directory_id}"
            )
        changed: dict[UUID, list[PartitionAssignment]] = {}
        for renewal in renewals:
            yield
            topic = self._image.topics.get(renewal.topic_id)
            if topic is None or not 0 <= renewal.partition < len(topic.partitions):
                continue
            partitions = changed.get(topic.topic_id) or list(topic.partitions)
            partition = partitions[renewal.partition]
            if node_id not in partition.replicas:
                continue
            position = partition.replicas.index(node_id)
            if partition.incarnations[position] >= renewal.incarnation:
                continue
            partitions[renewal.partition] = _with_identity(
                partition, position, directory_id, renewal.incarnation
            )
            changed[topic.topic_id] = partitions
        return Decision((yield from changed_topics(self._image, changed)), None)

    def _add_moved(self, broker: BrokerRecord, records: list[KeyValue]) -> Generator[None, None, None]:
        """Add the records of topics whose targets name another directory of this node; they name this one then."""
        for topic in self._image.topics_by_name():
            partitions: list[PartitionAssignment] = []
            for partition in topic.partitions:
                partitions.append(partition)
                if broker.node_id in partition.replicas:
                    position = partition.replicas.index(broker.node_id)
                    if partition.directories[position] != broker.directory_id:
                        partitions[-1] = _with_identity(partition, position, broker.directory_id, 0)
                if len(partitions) % PARTITIONS_PER_STEP == 0:
                    yield
            records += yield from changed_topics(self._image, {topic.topic_id: partitions})


def _with_identity(
    partition: PartitionAssignment, position: int, directory_id: UUID, incarnation: int
) -> PartitionAssignment:
    directories, incarnations = list(partition.directories), list(partition.incarnations)
    directories[position] = directory_id
    incarnations[position] = incarnation
    return replace(
        partition,
        directories=tuple(directories),
        incarnations=tuple(incarnations),
        changed_from=partition.founding,
    )
