"""Partitions that are to move: wishing for it, what is on its way, and when it is over (KIP-455).

Which wish comes of the named nodes stands in `broker.metadata.reassignment`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from uuid import UUID

from broker.metadata import reassignment
from broker.metadata.decisions.common import changed_topics
from broker.metadata.image import MetadataImage
from broker.metadata.records import BrokerRecord, PartitionAssignment, ReplicaIdentity
from broker.metadata.requests import Decision, OngoingReassignment, Reassignment, ReassignmentResult
from protocol.errors import ErrorCode, KafkaError


class ReassignmentDecisions:
    def __init__(self, image: MetadataImage, is_alive: Callable[[BrokerRecord], bool]) -> None:
        self._image = image
        self._is_alive = is_alive

    def reassign(
        self, reassignments: Sequence[Reassignment], *, may_change_count: bool = True
    ) -> Decision[tuple[ReassignmentResult, ...]]:
        """Wish for other replicas of partitions (KIP-455). One result per entry, in order; a later wish for the same
        partition replaces an earlier one. `may_change_count`: a wish for more or fewer replicas is no mistake."""
        changed: dict[UUID, list[PartitionAssignment]] = {}
        results: list[ReassignmentResult] = []
        for wanted in reassignments:
            error, message = ErrorCode.NONE, None
            try:
                topic, _ = reassignment.partition_of(self._image, wanted)
                wish = changed.setdefault(topic.topic_id, list(topic.partitions))
                wish[wanted.partition] = self._reassigned(
                    wish[wanted.partition], wanted.replicas, may_change_count
                )
            except KafkaError as refused:
                error, message = refused.code, refused.message
            results.append(ReassignmentResult(wanted.topic, wanted.partition, error, message))
        return Decision(changed_topics(self._image, changed), tuple(results))

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

    def list_ongoing(self) -> Decision[list[OngoingReassignment]]:
        return Decision((), reassignment.ongoing(self._image))

    def finish(
        self, topic_id: UUID, partition: int, fact: Sequence[ReplicaIdentity], as_of: int
    ) -> Decision[None]:
        """The partition's leader says that the configuration of exactly these voters is committed; its image ended at
        `as_of` then. Where that is the wish no more, or the topic is gone, nothing changes. Nor where the wish was
        another one since: what is said may be old, and the voters may have followed those wishes."""
        topic = self._image.topics.get(topic_id)
        if topic is None or not 0 <= partition < len(topic.partitions):
            return Decision((), None)
        if self._image.assigned_at(topic_id, partition) > as_of:
            return Decision((), None)
        wish = list(topic.partitions)
        wish[partition] = reassignment.finished(wish[partition], fact)
        return Decision(changed_topics(self._image, {topic_id: wish}), None)
