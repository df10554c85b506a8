"""Which nodes hold a partition, and which of them leads it."""

from __future__ import annotations

import uuid

from protocol.controller.request import EmptyResult, ItemResult, Request, Result
from protocol.schema import BOOLEAN, INT16, INT32, INT64, STRING, UUID, Message, array, field


class ReassignedPartition(Message):
    topic: str = field(STRING)
    partition: int = field(INT32)
    node_ids: list[int] | None = field(array(INT32), nullable="0+")
    """The target, preferred leader first. None: the reassignment that is under way is cancelled."""


class ReassignPartitionsResult(Result, flexible="0+"):
    partitions: list[ItemResult] = field(array(ItemResult))
    """In the order of the request."""


class ReassignPartitions(Request[ReassignPartitionsResult], flexible="0+"):
    partitions: list[ReassignedPartition] = field(array(ReassignedPartition))
    allow_replication_factor_change: bool = field(BOOLEAN, default=True)

    def is_answered_by(self, result: ReassignPartitionsResult) -> bool:
        return len(result.partitions) == len(self.partitions)


class OngoingReassignment(Message):
    topic: str = field(STRING)
    partition: int = field(INT32)
    node_ids: list[int] = field(array(INT32))
    """The target, and behind it the nodes that are being removed."""
    adding: list[int] = field(array(INT32))
    removing: list[int] = field(array(INT32))


class ListReassignmentsResult(Result, flexible="0+"):
    partitions: list[OngoingReassignment] = field(array(OngoingReassignment))


class ListReassignments(Request[ListReassignmentsResult], flexible="0+"):
    """The reassignments that are under way."""


class Voter(Message):
    node_id: int = field(INT32)
    directory_id: uuid.UUID = field(UUID)
    incarnation: int = field(INT32)


class FinishReassignment(Request[EmptyResult], flexible="0+"):
    """A partition's leader says that the configuration of exactly these voters is committed."""

    topic_id: uuid.UUID = field(UUID)
    partition: int = field(INT32)
    voters: list[Voter] = field(array(Voter))
    image_end: int = field(INT64)
    """Of the leader's metadata image when it knew so: an assignment that changed later is not meant."""


class LedPartition(Message):
    topic_id: uuid.UUID = field(UUID)
    partition: int = field(INT32)


class TransferLeadershipResult(Result, flexible="0+"):
    error_codes: list[int] = field(array(INT16))
    """In the order of the request. NONE: the transfer is under way, and may yet fail."""


class TransferLeadership(Request[TransferLeadershipResult], flexible="0+"):
    """Asked of the node that leads these partitions: each is to be led by its preferred replica."""

    partitions: list[LedPartition] = field(array(LedPartition))

    def is_answered_by(self, result: TransferLeadershipResult) -> bool:
        return len(result.error_codes) == len(self.partitions)
