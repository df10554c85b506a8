"""Between the coordinator of a transaction and the partitions that are in it."""

from __future__ import annotations

import uuid

from protocol.controller.request import Request, Result
from protocol.schema import BOOLEAN, INT16, INT32, INT64, STRING, UUID, Message, array, field


class ErrorCodesResult(Result, flexible="0+"):
    error_codes: list[int] = field(array(INT16))
    """In the order of the request."""


class MarkerToWrite(Message):
    """The end of a transaction in one partition."""

    topic_id: uuid.UUID = field(UUID)
    partition: int = field(INT32)
    leader_epoch: int = field(INT32)
    """The partition must be led in this very epoch. A marker that was delayed on the way could end the next transaction
    of the same producer epoch."""
    producer_id: int = field(INT64)
    producer_epoch: int = field(INT16)
    coordinator_epoch: int = field(INT32)
    """Leader epoch of the coordinator's partition of `__transaction_state`."""
    is_commit: bool = field(BOOLEAN)
    attempt: int = field(INT64)
    """Counts what the coordinator's node has sent. A copy that was sent again has a greater number, and the partition
    refuses an earlier one behind it: that could end the next transaction of the same producer epoch (KIP-1228)."""


class WriteMarkers(Request[ErrorCodesResult], flexible="0+"):
    """Asked of the node that leads these partitions. NONE: the marker is committed."""

    markers: list[MarkerToWrite] = field(array(MarkerToWrite))

    def is_answered_by(self, result: ErrorCodesResult) -> bool:
        return len(result.error_codes) == len(self.markers)


class TransactionalPartition(Message):
    topic: str = field(STRING)
    topic_id: uuid.UUID = field(UUID)
    """As the leader of the partition knows it. The coordinator's image may still have another topic of that name."""
    partition: int = field(INT32)


class JoinedResult(Result, flexible="0+"):
    error_codes: list[int] = field(array(INT16))
    """In the order of the request."""
    unconfirmed_epoch: int = field(INT32)
    """Leader epoch of a coordinator that consents without a liveness round. It may have a successor that has ended the
    transaction: a partition with a marker of a later coordinator does not heed it. -1: the answer is confirmed."""


class JoinTransaction(Request[JoinedResult], flexible="0+"):
    """Asked of the coordinator of a transactional id, before records of the transaction are appended to partitions for
    the first time (KIP-890)."""

    transactional_id: str = field(STRING)
    producer_id: int = field(INT64)
    producer_epoch: int = field(INT16)
    partitions: list[TransactionalPartition] = field(array(TransactionalPartition))
    is_added: bool = field(BOOLEAN)
    """The partitions are added to the transaction. Otherwise they must be in it: the client has added them."""
    is_confirmed: bool = field(BOOLEAN)
    """The answer has to wait for a liveness round: a partition does not know the producer, and so cannot tell whether a
    later coordinator has written a marker."""

    def is_answered_by(self, result: JoinedResult) -> bool:
        return len(result.error_codes) == len(self.partitions)
