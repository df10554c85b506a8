"""A commit of offsets: the request, the answer, and which partitions the group allows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from protocol.errors import ErrorCode

#: (topic id, partition) -> NONE, or the error with which this partition is refused.
CommitCheck = Callable[[UUID, int], ErrorCode]


class Place(NamedTuple):
    """A partition of a topic, named by the topic's name: where an offset was committed."""

    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class OffsetToCommit:
    topic: str
    topic_id: UUID
    partition: int
    offset: int
    leader_epoch: int = -1
    metadata: str = ""


@dataclass(frozen=True, slots=True)
class CommitRequest:
    """A commit of a member, or from outside the group: then `generation` is -1."""

    group_id: str
    offsets: list[OffsetToCommit]
    member_id: str = ""
    instance_id: str | None = None
    generation: int = -1
    """The generation of a classic group, the member epoch of a consumer group."""
    retention_ms: int = -1
    """How long the offsets of this commit are kept (OffsetCommit v2 to v4). -1: offsets.retention.minutes."""
    knows_epochs: bool = True
    """`generation` may be a member epoch: OffsetCommit v9 and later."""
    producer: tuple[int, int] | None = None
    """(producer id, epoch) of the transaction that commits the offsets."""
    check_append: Callable[[], None] | None = None
    """As in `Outcome`."""

    @property
    def is_anonymous(self) -> bool:
        """Older versions of TxnOffsetCommit name no member. The transaction itself fences others then."""
        return (
            self.producer is not None
            and self.generation < 0
            and not self.member_id
            and self.instance_id is None
        )


@dataclass(frozen=True, slots=True)
class CommitAnswer:
    error: ErrorCode
    errors: list[ErrorCode]
    """One per offset, in the order of the request. Empty if `error` is for all of them."""
