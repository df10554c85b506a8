"""What a group's machine offers to the shard that holds it, whichever protocol its members speak.

A machine decides and never waits. What it decides durably it returns as records and learns of in `replay`, like
everybody who loads the log later; who is joining, timers and parked tickets are its own, and are lost with leadership.
A method that refuses raises KafkaError, and has changed nothing then but that a session may be kept alive.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Protocol

from broker.coordinator.outcome import Outcome
from broker.groups.commit import CommitCheck, CommitRequest
from broker.groups.records import GroupRecord
from protocol.errors import ErrorCode, KafkaError

#: What a record, or an older version of an answer, can hold of a text. Newer requests can bring longer ones.
MAX_TEXT_BYTES = 32767


class Group(Protocol):
    group_id: str

    @property
    def group_type(self) -> str:
        """As ListGroups names it: "classic" or "consumer"."""

    @property
    def state(self) -> str:
        """As ListGroups and DescribeGroups name it: "Stable", "PreparingRebalance", ..."""

    @property
    def protocol_type(self) -> str: ...
    @property
    def is_empty(self) -> bool:
        """No members: it may be deleted, and admin tools may commit offsets."""

    def replay(self, record: GroupRecord) -> None:
        """One of the group's own records. The only way its durable state changes."""

    def loaded(self, now: float) -> None:
        """All of the log is replayed: members have their full session timeout from now on."""

    def next_deadline(self) -> float | None:
        """When `expire` has something to do. May be too early, never too late; asked after every decision, so it must
        not walk the members (broker.coordinator.deadlines)."""

    def expire(self, now: float, now_ms: int) -> Outcome[GroupRecord]:
        """A deadline has come, perhaps."""

    def check_commit(self, request: CommitRequest, now: float) -> CommitCheck | None:
        """May this member commit offsets? A commit of the classic protocol counts as a heartbeat. The request's
        generation is the member epoch of a consumer group, where the client `knows_epochs`; -1 is a commit from outside
        (admin tools). Raises KafkaError. None: of every partition."""

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """May this member fetch committed offsets? (None, -1) is not a member, and may. Raises KafkaError."""

    def subscribed_among(self, topics: Set[str]) -> Set[str]:
        """While members are subscribed to a topic its offsets neither expire nor may be deleted. Of many at once: it
        may have to look at what every member has said."""

    def expires_from_ms(self, commit_timestamp_ms: int) -> int | None:
        """The moment from which offsets.retention.minutes count for an offset of this commit time (KIP-211).
        None: not while the group is as it is."""

    def tombstones(self) -> list[GroupRecord]:
        """Of all records of the group, offsets excepted."""


def check_group_id(group_id: str, *, may_be_empty: bool = False) -> None:
    """Offsets may be committed for the group "", as in Kafka; nobody can join it."""
    if not (group_id or may_be_empty) or len(group_id.encode()) > MAX_TEXT_BYTES:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)


def check_texts(*texts: str | None) -> None:
    """Of a request, which are to be stored."""
    if any(text is not None and len(text.encode()) > MAX_TEXT_BYTES for text in texts):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"a text of more than {MAX_TEXT_BYTES} bytes")
