"""Topics and how many partitions they have."""

from __future__ import annotations

import uuid

from protocol.controller.request import Request, Result
from protocol.schema import BOOLEAN, INT16, INT32, NIL_UUID, STRING, UUID, Message, array, field


class ReplicaAssignment(Message):
    """The nodes of one partition of a new topic, preferred leader first."""

    partition: int = field(INT32)
    node_ids: list[int] = field(array(INT32))


class TopicSetting(Message):
    name: str = field(STRING)
    value: str | None = field(STRING, nullable="0+")


class NewTopic(Message):
    """As in Kafka's CreateTopics: -1 for the broker's default, or where nodes are assigned."""

    name: str = field(STRING)
    num_partitions: int = field(INT32, default=-1)
    replication_factor: int = field(INT16, default=-1)
    assignments: list[ReplicaAssignment] = field(array(ReplicaAssignment), default_factory=list)
    settings: list[TopicSetting] = field(array(TopicSetting), default_factory=list)


class CreatedTopic(Message):
    """What became of one topic that was to be created."""

    name: str = field(STRING)
    error_code: int = field(INT16, default=0)
    error_message: str | None = field(STRING, nullable="0+", default=None)
    topic_id: uuid.UUID = field(UUID, default=NIL_UUID)
    """NIL_UUID: nothing was created, because of an error or since the request was only to be validated."""
    num_partitions: int = field(INT32, default=-1)
    replication_factor: int = field(INT16, default=-1)
    settings: list[TopicSetting] = field(array(TopicSetting), default_factory=list)
    """What is set for this topic alone."""


class CreateTopicsResult(Result, flexible="0+"):
    topics: list[CreatedTopic] = field(array(CreatedTopic))
    """One for each distinct name."""


class CreateTopics(Request[CreateTopicsResult], flexible="0+"):
    topics: list[NewTopic] = field(array(NewTopic))
    validate_only: bool = field(BOOLEAN, default=False)
    is_internal: bool = field(BOOLEAN, default=False)
    """A node asks for itself: only so are the cluster's own topics created."""


class CreateMissingTopics(Request[CreateTopicsResult], flexible="0+"):
    """Topics that a client named and that are not there, with the broker's defaults."""

    names: list[str] = field(array(STRING))


class DeletedTopic(Message):
    """What became of one topic that was to be deleted."""

    topic_id: uuid.UUID = field(UUID)
    error_code: int = field(INT16, default=0)
    """UNKNOWN_TOPIC_ID: it is not there, perhaps because an attempt before has deleted it."""
    error_message: str | None = field(STRING, nullable="0+", default=None)


class DeleteTopicsResult(Result, flexible="0+"):
    topics: list[DeletedTopic] = field(array(DeletedTopic))
    """One for each distinct id."""


class DeleteTopics(Request[DeleteTopicsResult], flexible="0+"):
    """By id alone: a request is repeated where its answer may be lost, and by then another topic may have the name."""

    topic_ids: list[uuid.UUID] = field(array(UUID))


class NewPartitionNodes(Message):
    """The nodes of one partition that is to be added, preferred leader first."""

    node_ids: list[int] = field(array(INT32))


class NewPartitions(Message):
    name: str = field(STRING)
    count: int = field(INT32)
    """How many there will be, the old ones included."""
    assignments: list[NewPartitionNodes] | None = field(array(NewPartitionNodes), nullable="0+", default=None)
    """One for each new partition. None: the controller chooses."""


class ExtendedTopic(Message):
    """What became of one topic that was to have more partitions."""

    name: str = field(STRING)
    error_code: int = field(INT16, default=0)
    error_message: str | None = field(STRING, nullable="0+", default=None)
    topic_id: uuid.UUID = field(UUID, default=NIL_UUID)
    first_partition: int = field(INT32, default=0)
    """Number of the first partition that was added, of `partition_count`; 0 where none was."""
    partition_count: int = field(INT32, default=0)


class CreatePartitionsResult(Result, flexible="0+"):
    topics: list[ExtendedTopic] = field(array(ExtendedTopic))
    """One for each distinct name."""


class CreatePartitions(Request[CreatePartitionsResult], flexible="0+"):
    topics: list[NewPartitions] = field(array(NewPartitions))
    validate_only: bool = field(BOOLEAN, default=False)


class FindDeletedTopicsResult(Result, flexible="0+"):
    topic_ids: list[uuid.UUID] = field(array(UUID))


class FindDeletedTopics(Request[FindDeletedTopicsResult], flexible="0+"):
    """Which of these ids are topics no more. An id is never used again, so the answer stays true."""

    topic_ids: list[uuid.UUID] = field(array(UUID))
