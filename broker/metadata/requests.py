"""What the controller is asked and what it answers, free of wire versions."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar
from uuid import UUID

from broker.metadata.records import KeyValue
from protocol.errors import ErrorCode

ResponseT_co = TypeVar("ResponseT_co", covariant=True)
AnswerT = TypeVar("AnswerT")

#: In a CreateTopics request: let the broker choose (v4+).
BROKER_DEFAULT = -1


@dataclass(frozen=True, slots=True)
class Decision(Generic[ResponseT_co]):
    """Records to append and replay, and the answer to give once they are committed.

    An answer without records still depends on the image that was read: it leaves when the log end of that
    moment is committed (replication.md section 9).
    """

    records: tuple[KeyValue, ...]
    response: ResponseT_co

    def answering(self, response: AnswerT) -> Decision[AnswerT]:
        """The same records with another answer."""
        return Decision(self.records, response)


#: The steps of a decision. The image does not change meanwhile.
Deciding = Generator[None, None, Decision[AnswerT]]


@dataclass(frozen=True, slots=True)
class NewTopic:
    """One topic of a CreateTopics request."""

    name: str
    num_partitions: int = BROKER_DEFAULT
    replication_factor: int = BROKER_DEFAULT
    assignments: tuple[tuple[int, tuple[int, ...]], ...] = ()
    """(partition, node ids, preferred leader first), as sent. Excludes the two counts."""
    configs: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicResult:
    """What became of one topic of a CreateTopics or CreatePartitions request."""

    name: str
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    topic_id: UUID | None = None
    num_partitions: int = -1
    new_partitions: range = range(0)
    """CreatePartitions: the numbers of those that were added."""
    replication_factor: int = -1
    configs: Mapping[str, str] = field(default_factory=dict)
    """The topic's overrides. The handler adds the defaults (CreateTopics v5+)."""


@dataclass(frozen=True, slots=True)
class NewPartitions:
    """One topic of a CreatePartitions request."""

    topic: str
    count: int
    """How many there will be, the old ones included."""
    assignments: tuple[tuple[int, ...], ...] | None = None
    """Node ids of each new partition, preferred leader first. None: the controller chooses."""


@dataclass(frozen=True, slots=True)
class ProducerIdBlock:
    """Producer ids from `first` on, `count` of them, that no other broker will hand out."""

    first: int
    count: int


@dataclass(frozen=True, slots=True)
class FeatureUpdate:
    """The level that one feature should have, as UpdateFeatures (KIP-584) names it."""

    name: str
    level: int
    upgrade_type: int
    """An UpgradeType, if the client keeps to the protocol."""


@dataclass(frozen=True, slots=True)
class Reassignment:
    """The target assignment of one partition, as AlterPartitionReassignments (KIP-455) names it."""

    topic: str
    partition: int
    replicas: tuple[int, ...] | None
    """Node ids, the preferred leader first. None: go back to those before the reassignment that is under way."""


@dataclass(frozen=True, slots=True)
class ReassignmentResult:
    topic: str
    partition: int
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


@dataclass(frozen=True, slots=True)
class OngoingReassignment:
    """A partition on its way, as ListPartitionReassignments tells it."""

    topic: str
    partition: int
    replicas: tuple[int, ...]
    """The target, and behind it the nodes that are being removed."""
    adding: tuple[int, ...]
    removing: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ReplicaRenewal:
    """A replica that discarded its log under a raised incarnation (replication.md sections 2 and 3)."""

    topic_id: UUID
    partition: int
    incarnation: int
