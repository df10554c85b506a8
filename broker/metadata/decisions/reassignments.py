"""Reassigning partitions to other nodes: beginning it, what is under way, and when it is over (KIP-455).

The target that follows from the named nodes is computed in `broker.metadata.reassignment`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from uuid import UUID

from broker.metadata import reassignment
from broker.metadata.decisions.common import changed_topics
from broker.metadata.image import MetadataImage
from broker.metadata.records import BrokerRecord, PartitionAssignment, ReplicaIdentity
from broker.metadata.requests import Deciding, Decision, OngoingReassignment, Reassignment, ReassignmentResult
from protocol.errors import ErrorCode, KafkaError


class ReassignmentDecisions:
    def __init__(self, image: MetadataImage, is_alive: Callable[[BrokerRecord], bool]) -> None:
        self._image = image
        self._is_alive = is_alive

    def reassign(
        self, reassignments: Sequence[Reassignment], *, may_change_count: bool = True
    ) -> Deciding[tuple[ReassignmentResult, ...]]:
        """Give partitions other targets (KIP-455). One result per entry, in order; a later entry for the same partition
        replaces an earlier one. `may_change_count`: more or fewer replicas than before are allowed."""
        changed: dict[UUID, list[PartitionAssignment]] = {}
        results: list[ReassignmentResult] = []
        for wanted in reassignments:
            yield
            error, message = ErrorCode.NONE, None
            try:
                topic, _ = reassignment.partition_of(self._image, wanted)
                targets = changed.get(topic.topic_id)
                if targets is None:
                    targets = changed[topic.topic_id] = list(topic.partitions)
                targets[wanted.partition] = self._reassigned(
                    targets[wanted.partition], wanted.replicas, may_change_count
                )
            except KafkaError as refused:
                error, message = refused.code, refused.message
            results.append(ReassignmentResult(wanted.topic, wanted.partition, error, message))
        return Decision((yield from changed_topics(self._image, changed)), tuple(results))

    def _reassigned(
        self, partition: PartitionAssignment, replicas: tuple[int, ...] | None, may_change_count: bool
    ) -> PartitionAssignment:
        if replicas is None:
            return reassignment.cancelled(partition, self._image)
        reassignment.check_nodes(replicas, self._image)
        count = len(partition.moving_from or partition.replicas)
        if len(replicas) != count and not may_change_count:
            raise KafkaError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"the partition has {count} replicas and would have {len(replicas)}",
            )
        self._check_majority_alive(replicas)
        return reassignment.moved(partition, replicas, self._image)

    def _check_majority_alive(self, replicas: Sequence[int]) -> None:
        """Otherwise the partition would be moved to where it cannot be used."""
        alive = [node_id for node_id in replicas if self._is_alive(self._image.brokers[node_id])]
        if 2 * len(alive) <= len(replicas):
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"of the brokers {list(replicas)} only {alive} are alive",
            )

    def list_ongoing(self) -> Deciding[list[OngoingReassignment]]:
        return Decision((), (yield from reassignment.ongoing(self._image)))

    def finish(
        self, topic_id: UUID, partition: int, voters: Sequence[ReplicaIdentity], image_end: int
    ) -> Deciding[None]:
        """The partition's leader says that the configuration of exactly these voters is committed; its image ended at
        `image_end` then. Nothing changes where they are not the target, or the topic is gone. Nor where the target has
        changed since `image_end`: the report may be stale, and the voters may have followed the later targets."""
        topic = self._image.topics.get(topic_id)
        if topic is None or not 0 <= partition < len(topic.partitions):
            return Decision((), None)
        if self._image.assigned_at(topic_id, partition) > image_end:
            return Decision((), None)
        targets = list(topic.partitions)
        targets[partition] = reassignment.finished(targets[partition], voters)
        return Decision((yield from changed_topics(self._image, {topic_id: targets})), None)
