"""A commit of offsets: what is asked, what is answered, and what a group allows of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from protocol.errors import ErrorCode

#: (topic id, partition) -> NONE, or why this member may not commit there.
CommitCheck = Callable[[UUID, int], ErrorCode]


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
    """Of one member, or from outside: generation -1 (KIP-848: the member epoch)."""

    group_id: str
    offsets: list[OffsetToCommit]
    member_id: str = ""
    instance_id: str | None = None
    generation: int = -1
    retention_ms: int = -1
    """How long this very commit is kept (OffsetCommit v2 to v4); -1: offsets.retention.minutes."""
    knows_epochs: bool = True
    """The client knows that `generation` may be a member epoch: OffsetCommit v9 and later."""


@dataclass(frozen=True, slots=True)
class CommitAnswer:
    error: ErrorCode
    errors: list[ErrorCode]
    """One per offset, in the order of the request; empty where `error` is for all."""
