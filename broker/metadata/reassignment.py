"""Reassigning a partition: the target that follows from the nodes an administrator names, and when it is reached.

Metadata holds the target assignment, the lineage the current members (replication.md section 4). A replica that is
being removed stays in the record as `removing` until the leader reports that its removal is committed; only then may
its log go.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import replace

from broker.metadata.image import MetadataImage
from broker.metadata.record_codec import PARTITIONS_PER_STEP
from broker.metadata.records import PartitionAssignment, ReplicaIdentity, TopicRecord
from broker.metadata.requests import OngoingReassignment, Reassignment
from protocol.errors import ErrorCode, KafkaError


def partition_of(image: MetadataImage, reassignment: Reassignment) -> tuple[TopicRecord, PartitionAssignment]:
    """Raises KafkaError(UNKNOWN_TOPIC_OR_PARTITION)."""
    topic = image.topic_named(reassignment.topic)
    if topic is None or not 0 <= reassignment.partition < len(topic.partitions):
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"there is no partition {reassignment.partition} of {reassignment.topic}",
        )
    return topic, topic.partitions[reassignment.partition]


def check_nodes(replicas: Sequence[int], image: MetadataImage) -> None:
    """Raises KafkaError(INVALID_REPLICA_ASSIGNMENT) for a target that could never be reached."""
    problem: str | None = None
    unknown = [node_id for node_id in replicas if node_id not in image.brokers]
    if not replicas:
        problem = "a partition needs a replica"
    elif len(set(replicas)) != len(replicas):
        problem = "a broker is named twice"
    elif unknown:
        problem = f"broker {unknown[0]} is not registered"
    if problem is not None:
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)


def moved(
    partition: PartitionAssignment, replicas: Sequence[int], image: MetadataImage
) -> PartitionAssignment:
    """The target with a replica on each of these nodes, and nowhere else.

    A node that has a replica keeps it, also where that one was to be removed. A new replica gets incarnation 0. A node
    that held the partition before has another incarnation by now and asks for that one itself
    (`BrokerDecisions.renew_replicas`). The nodes before the first of several reassignments are remembered until one
    is finished, or names them again.
    """
    present = {replica.node_id: replica for replica in (*partition.identities, *partition.removing)}
    target: list[ReplicaIdentity] = []
    for node_id in replicas:
        directory_id, known = image.brokers[node_id].directory_id, present.get(node_id)
        is_there = known is not None and known.directory_id == directory_id
        target.append(known if known and is_there else ReplicaIdentity(node_id, directory_id, 0))
    removing = tuple(replica for replica in present.values() if replica.node_id not in replicas)
    before = partition.moving_from or partition.replicas
    moving_from = before if set(before) != set(replicas) else None
    return PartitionAssignment.of(target, partition.founding, removing, moving_from)


def cancelled(partition: PartitionAssignment, image: MetadataImage) -> PartitionAssignment:
    """The target of before. Replicas that were added in between are removed again, unseen by clients. Raises
    KafkaError(NO_REASSIGNMENT_IN_PROGRESS)."""
    if partition.moving_from is None:
        raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "no reassignment is in progress")
    return moved(partition, partition.moving_from, image)


def ongoing(image: MetadataImage) -> Generator[None, None, list[OngoingReassignment]]:
    """The reassignments that are under way, in the order of topics and partitions."""
    found: list[OngoingReassignment] = []
    for topic in image.topics_by_name():
        for index, partition in enumerate(topic.partitions):
            if partition.moving_from is not None:
                found.append(_describe(topic.name, index, partition, partition.moving_from))
            if index % PARTITIONS_PER_STEP == 0:
                yield
    return found


def _describe(
    topic: str, index: int, partition: PartitionAssignment, before: tuple[int, ...]
) -> OngoingReassignment:
    target = partition.replicas
    adding = tuple(node_id for node_id in target if node_id not in before)
    removing = tuple(node_id for node_id in before if node_id not in target)
    return OngoingReassignment(topic, index, target + removing, adding, removing)


def finished(partition: PartitionAssignment, voters: Sequence[ReplicaIdentity]) -> PartitionAssignment:
    """`voters`: those of a committed configuration without learners. If they are the target, every removal is
    committed."""
    if set(voters) != set(partition.identities):
        return partition
    return replace(partition, removing=(), moving_from=None)
