"""What the journal records of a group, and how each kind looks in bytes.

Every payload starts with the group: topic id (16 bytes) and partition (int32). All big-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple
from uuid import UUID

from storage.lineage import NO_TERM
from storage.log_types import FlushedEnd, GroupKey

_GROUP = struct.Struct(">16si")
_VOTE = struct.Struct(">ibi16si")
_FLUSHED = struct.Struct(">qib")
_INCARNATION = struct.Struct(">i")
_BOUNDS = struct.Struct(">qqqqq")
_QUARANTINE = struct.Struct(">b")


class VotedFor(NamedTuple):
    """A voter's identity (replication.md section 3)."""

    node_id: int
    #: 16 bytes.
    directory_id: bytes
    incarnation: int


_NOBODY = VotedFor(-1, bytes(16), 0)


@dataclass(slots=True)
class GroupState:
    """What the journal knows of one group."""

    term: int = NO_TERM
    voted_for: VotedFor | None = None
    #: Whether term and vote were ever recorded. Without a record the vote is lost, not "none".
    has_vote: bool = False
    flushed_end: FlushedEnd | None = None
    incarnation: int = 0
    bounds: Bounds | None = None
    is_quarantined: bool = False

    def records(self, group: GroupKey) -> Iterator[JournalRecord]:
        """The shortest run of records that makes this state out of an empty one."""
        if self.has_vote:
            yield Vote(group, self.term, self.voted_for)
        # Before the two that it makes void.
        if self.incarnation:
            yield Incarnation(group, self.incarnation)
        if self.flushed_end is not None:
            yield Flushed(group, self.flushed_end)
        if self.bounds is not None:
            yield self.bounds
        if self.is_quarantined:
            yield Quarantine(group, True)


class Vote(NamedTuple):
    """The hard state of a group: its current term and whom this replica voted for in it."""

    group: GroupKey
    term: int
    voted_for: VotedFor | None

    def apply(self, state: GroupState) -> None:
        assert self.term >= state.term, f"term {self.term} after {state.term}"
        state.term = self.term
        state.voted_for = self.voted_for
        state.has_vote = True


class Flushed(NamedTuple):
    """The log was durable up to here. Lowered, durably, before a truncation touches the log."""

    group: GroupKey
    end: FlushedEnd

    def apply(self, state: GroupState) -> None:
        state.flushed_end = self.end


class Incarnation(NamedTuple):
    """Which log of this replica counts. Raised, durably, before a log is discarded.

    What was recorded of the log before it (its durable end, its bounds) says nothing about the next one and is
    forgotten; term and vote are the replica's and stay.
    """

    group: GroupKey
    incarnation: int

    def apply(self, state: GroupState) -> None:
        assert self.incarnation > state.incarnation, f"{self.incarnation} after {state.incarnation}"
        state.incarnation = self.incarnation
        state.flushed_end = None
        state.bounds = None


class Bounds(NamedTuple):
    """Watermarks of the replica that must be durable before they are reported (rule F3 of
    coordinated-compaction.md; replication.md section 6 for the log start)."""

    group: GroupKey
    log_start: int
    mtro: int
    mxro: int
    mcco: int
    mxfo: int

    def apply(self, state: GroupState) -> None:
        state.bounds = self


class Quarantine(NamedTuple):
    """The log on disk must not be served: it is corrupt, or is about to be discarded."""

    group: GroupKey
    is_quarantined: bool

    def apply(self, state: GroupState) -> None:
        state.is_quarantined = self.is_quarantined


class Forget(NamedTuple):
    """The topic was deleted: nothing of the group matters any more."""

    group: GroupKey


StateRecord = Vote | Flushed | Incarnation | Bounds | Quarantine
JournalRecord = StateRecord | Forget


class RecordKind(IntEnum):
    """Numbers in the file: never reuse one."""

    VOTE = 1
    FLUSHED = 2
    INCARNATION = 3
    BOUNDS = 4
    QUARANTINE = 5
    FORGET = 6


def encode_record(record: JournalRecord) -> tuple[int, bytes]:
    """(kind, payload)."""
    group = _GROUP.pack(record.group.topic_id.bytes, record.group.partition)
    match record:
        case Vote(_, term, voted_for):
            voter = voted_for if voted_for is not None else _NOBODY
            return RecordKind.VOTE, group + _VOTE.pack(term, voted_for is not None, *voter)
        case Flushed(_, end):
            return RecordKind.FLUSHED, group + _FLUSHED.pack(*end)
        case Incarnation(_, incarnation):
            return RecordKind.INCARNATION, group + _INCARNATION.pack(incarnation)
        case Bounds():
            return RecordKind.BOUNDS, group + _BOUNDS.pack(*record[1:])
        case Quarantine(_, is_quarantined):
            return RecordKind.QUARANTINE, group + _QUARANTINE.pack(is_quarantined)
        case Forget():
            return RecordKind.FORGET, group


def decode_record(kind: int, payload: bytes) -> JournalRecord:
    """The inverse. The payload has passed its checksum, so anything odd is a newer version's journal."""
    topic_id, partition = _GROUP.unpack_from(payload)
    group = GroupKey(UUID(bytes=topic_id), partition)
    rest = payload[_GROUP.size :]
    match kind:
        case RecordKind.VOTE:
            term, has_voted, *voted_for = _VOTE.unpack(rest)
            return Vote(group, term, VotedFor(*voted_for) if has_voted else None)
        case RecordKind.FLUSHED:
            end_index, row_count, is_settled = _FLUSHED.unpack(rest)
            return Flushed(group, FlushedEnd(end_index, row_count, bool(is_settled)))
        case RecordKind.INCARNATION:
            return Incarnation(group, _INCARNATION.unpack(rest)[0])
        case RecordKind.BOUNDS:
            return Bounds(group, *_BOUNDS.unpack(rest))
        case RecordKind.QUARANTINE:
            return Quarantine(group, bool(_QUARANTINE.unpack(rest)[0]))
        case RecordKind.FORGET:
            return Forget(group)
        case _:
            raise ValueError(f"journal record of unknown kind {kind}")
