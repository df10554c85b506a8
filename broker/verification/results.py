"""What is asked of a replica, and what a comparison has found. Values only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from broker.replication.digest_state import DigestState
from storage.compaction.view_digest import OffsetRange, RangeDigest


class Question(NamedTuple):
    view: OffsetRange
    """What is compared. Its end is at or below the last stable offset of the leader."""
    focus: OffsetRange
    """The part of it of which there is a digest."""
    is_by_key: bool
    """Whether the newest record of each key counts, or every batch."""
    is_background: bool
    """Nobody waits for it: the log is read slowly."""


#: A digest, or why there is none.
Answer = RangeDigest | DigestState


class Difference(NamedTuple):
    """The first one between the leader and a member."""

    offsets: OffsetRange
    """It lies here: one offset, if it could be searched for to the end."""
    records_here: int
    """Of the leader, in this range; batches, if the topic is not compacted."""
    records_there: int


@dataclass
class MemberResult:
    node_id: int
    not_compared: str = ""
    """Why not. Empty: it was."""
    difference: Difference | None = None
    like: int = -1
    """The lowest node id among those that say the same, this one included. -1: it was not compared."""


class Outcome(StrEnum):
    """Of one comparison."""

    EQUAL = "equal"
    DIFFERENT = "different"
    INCOMPLETE = "incomplete"
    """No replica differs, but some could not be compared."""
    FAILED = "failed"
    """Nothing was compared."""


@dataclass
class Compared:
    """One partition. Its leader comes first among the members."""

    view: OffsetRange
    is_by_key: bool
    records: int
    """Of the leader, that were compared; batches, if the topic is not compacted."""
    members: list[MemberResult] = field(default_factory=list)

    @property
    def differing(self) -> Iterator[tuple[int, Difference]]:
        """Members, by node id."""
        for member in self.members:
            if member.difference is not None:
                yield member.node_id, member.difference

    @property
    def outcome(self) -> Outcome:
        if any(self.differing):
            return Outcome.DIFFERENT
        is_incomplete = any(member.not_compared for member in self.members)
        return Outcome.INCOMPLETE if is_incomplete else Outcome.EQUAL


class NotComparedError(Exception):
    """Nothing was compared. The message says why, for users."""


class LeadershipLostError(NotComparedError):
    """This node does not lead the partition, or does not any more."""


#: The next question does otherwise: it is about another range, or of another kind.
ASKED_ANEW = (
    DigestState.COMPACTED_FURTHER,
    DigestState.STARTS_LATER,
    DigestState.REWRITTEN,
    DigestState.FAILED,
)


def must_ask_anew(answers: Sequence[Answer | None]) -> bool:
    return any(answer in ASKED_ANEW for answer in answers if isinstance(answer, DigestState))


def group_alike(digests: Mapping[int, RangeDigest]) -> dict[int, int]:
    """By node id, the lowest node id with an equal digest."""
    alike: dict[int, int] = {}
    for node_id in sorted(digests):
        alike[node_id] = next(
            (other for other in alike if digests[other] == digests[node_id]),
            node_id,
        )
    return alike
