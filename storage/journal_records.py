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
_BOUND = struct.Struct(">q")
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
    #: Whether term and vote were ever recorded. Without a record the vote is unknown, not "none".
    has_vote: bool = False
    flushed_end: FlushedEnd | None = None
    incarnation: int = 0
    bounds: Bounds | None = None
    is_quarantined: bool = False

    def records(self, group: GroupKey) -> Iterator[JournalRecord]:
        """The shortest run of records that makes this state out of an empty one."""
        if self.has_vote:
            yield Vote(group, self.term, self.voted_for)
        # It clears the end and the bounds, so it comes before them.
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
    """The log was durable up to this end. A lower end is durable before a truncation touches the log."""

    group: GroupKey
    end: FlushedEnd

    def apply(self, state: GroupState) -> None:
        state.flushed_end = self.end


class Incarnation(NamedTuple):
    """The number of this replica's current log. The raised number is durable before the old log is discarded.

    What was recorded of the discarded log (its durable end, its bounds) says nothing about the next one and is cleared.
    Term and vote belong to the replica and stay.
    """

    group: GroupKey
    incarnation: int

    def apply(self, state: GroupState) -> None:
        assert self.incarnation > state.incarnation, f"{self.incarnation} after {state.incarnation}"
        state.incarnation = self.incarnation
        state.flushed_end = None
        state.bounds = None


#: A bound that was never raised: below every offset.
UNSET = -1


class Bounds(NamedTuple):
    """Watermarks of the replica that must be durable before they are reported (rule F3 of
    coordinated-compaction.md; replication.md section 6 for the log start). All are exclusive upper bounds, in offsets.

    Invariant: under one incarnation none of them ever falls. So whoever raises one has to repeat the others.
    """

    group: GroupKey
    log_start: int = 0
    #: Tombstones below may be dropped by every member of the group (max tombstone remove offset).
    mtro: int = UNSET
    #: Transaction markers below may be dropped by every member (max transaction remove offset).
    mxro: int = UNSET
    #: Below this the replica's own log is compacted (max cleanly compacted offset).
    mcco: int = UNSET
    #: Below this the replica's own log holds no transactional data (max transaction-free offset).
    mxfo: int = UNSET
    #: Below this compaction may have removed batches, also in a pass that is not over. Durable before the first of them
    #: goes: a state of the producers that is replayed from further below is not what it was.
    rewritten_end: int = 0
    #: No offset: the term of the leader that sent the first entry of this log. It tells whether the log was begun under
    #: the membership that its leader knows (`watermarks.membership_seed`). UNSET: it was founded here.
    copied_in_term: int = UNSET
    #: No offset: when the last pass of compaction ended, Unix milliseconds. A clock set back does not lower it.
    passed_at_ms: int = UNSET

    def apply(self, state: GroupState) -> None:
        if state.bounds is not None:
            pairs = zip(self[1:], state.bounds[1:], strict=True)
            assert all(new >= old for new, old in pairs), f"{self} after {state.bounds}"
        state.bounds = self


class Quarantine(NamedTuple):
    """Whether the log on disk must not be served, because it is corrupt or is about to be discarded."""

    group: GroupKey
    is_quarantined: bool

    def apply(self, state: GroupState) -> None:
        state.is_quarantined = self.is_quarantined


class Forget(NamedTuple):
    """The topic was deleted, and the group with it."""

    group: GroupKey


StateRecord = Vote | Flushed | Incarnation | Bounds | Quarantine
JournalRecord = StateRecord | Forget


class RecordKind(IntEnum):
    """Numbers in the file. A number is never used again for another kind."""

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
            return RecordKind.BOUNDS, group + b"".join(map(_BOUND.pack, record[1:]))
        case Quarantine(_, is_quarantined):
            return RecordKind.QUARANTINE, group + _QUARANTINE.pack(is_quarantined)
        case Forget():
            return RecordKind.FORGET, group


def decode_record(kind: int, payload: bytes) -> JournalRecord:
    """The inverse. The payload has passed its checksum, so an unknown kind means the journal of a newer version.
    Raises ValueError."""
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
            # Records of earlier versions lack the last ones.
            values = [value for (value,) in _BOUND.iter_unpack(rest)]
            if len(values) >= len(Bounds._fields):
                raise ValueError(f"bounds of {len(values)} fields")
            return Bounds(group, *values)
        case RecordKind.QUARANTINE:
            return Quarantine(group, bool(_QUARANTINE.unpack(rest)[0]))
        case RecordKind.FORGET:
            return Forget(group)
        case _:
            raise ValueError(f"journal record of unknown kind {kind}")
