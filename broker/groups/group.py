"""What a shard asks of a group, whichever protocol the group's members speak.

A group is a state machine that decides and never waits. Durable changes are returned as records and happen in `replay`,
here as on every node that loads the log later. The rest of its state (who is joining, timers, parked tickets) is lost
with leadership. A method that refuses raises KafkaError and has changed nothing. It may have renewed a session, though.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Set
from typing import Protocol

from broker.coordinator.outcome import Decided
from broker.groups.commit import CommitCheck, CommitRequest
from broker.groups.records import GroupRecord
from protocol.errors import ErrorCode, KafkaError

#: The longest string that a record, or an older version of an answer, can hold. Newer requests can bring longer ones.
MAX_TEXT_BYTES = 32767


class Group(Protocol):
    group_id: str

    @property
    def group_type(self) -> str:
        """The name that ListGroups answers: "classic" or "consumer"."""

    @property
    def state(self) -> str:
        """The name that ListGroups and DescribeGroups answer: "Stable", "PreparingRebalance", ..."""

    @property
    def protocol_type(self) -> str: ...
    @property
    def is_empty(self) -> bool:
        """No members. Only an empty group may be deleted, or have offsets committed by admin tools."""

    @property
    def size_bytes(self) -> int:
        """What it takes in memory, its offsets not counted. Asked after every decision, so it must not walk the
        members."""

    def measure(self) -> Iterator[None]:
        """The group is loaded: find out what of `size_bytes` takes steps."""

    def replay(self, record: GroupRecord) -> None:
        """Apply one of the group's own records. Durable state changes here and nowhere else."""

    def loaded(self, now: float, heard_until: float) -> None:
        """All of the log is replayed. Every member has its full session timeout from `heard_until` on: its heartbeats
        until then may have been answered by the coordinator before this one."""

    def next_deadline(self) -> float | None:
        """When `expire` may have something to do: perhaps too early, never too late. Asked after every decision, so it
        must not walk the members (broker.coordinator.deadlines)."""

    def expire(self, now: float, now_ms: int) -> Decided[GroupRecord]:
        """The time of `next_deadline` has come. There may be nothing to do."""

    def check_commit(self, request: CommitRequest, now: float) -> CommitCheck | None:
        """Check that the sender may commit offsets. Raises KafkaError. None: it may commit for every partition.

        The request's generation is the member epoch in a consumer group, if the client `knows_epochs`. -1 is a commit
        from outside the group (admin tools). A commit of the classic protocol counts as a heartbeat."""

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Check that a member may fetch committed offsets. (None, -1) is a client that is no member; it may. Raises
        KafkaError."""

    def subscribed_among(self, topics: Set[str]) -> Generator[None, None, Set[str]]:
        """Those of `topics` that members are subscribed to. Their offsets do not expire and cannot be deleted. It takes
        many topics at once because it may have to look at every member's subscription, in steps."""

    def expires_from_ms(self, commit_timestamp_ms: int) -> int | None:
        """The time from which offsets.retention.minutes counts for an offset that was committed at this time (KIP-211).
        None: the offset does not expire while the group is in its present state."""

    def tombstones(self) -> list[GroupRecord]:
        """Tombstones of all records of the group except its offsets."""


def check_group_id(group_id: str, *, may_be_empty: bool = False) -> None:
    """Raises INVALID_GROUP_ID. As in Kafka, nobody can join the group "", but offsets may be committed for it."""
    if not (group_id or may_be_empty) or len(group_id.encode()) > MAX_TEXT_BYTES:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)


def check_texts(*texts: str | None) -> None:
    """Raises INVALID_REQUEST if one of these strings of a request is too long to be stored."""
    if any(text is not None and len(text.encode()) > MAX_TEXT_BYTES for text in texts):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"a string of more than {MAX_TEXT_BYTES} bytes")
