"""What a checker can find, and how it says so."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tests.history.operations import Place


class Kind(StrEnum):
    """The phenomena, after those that Jepsen's workload for Kafka looks for."""

    LOST_WRITE = "lost write"
    """Acknowledged, at or below the highest offset that anybody read, and read by nobody."""
    UNSEEN_WRITE = "unseen write"
    """Acknowledged, above everything that was read: nobody has looked there yet, or it is gone."""
    DUPLICATE = "duplicate"
    """An idempotent producer's value at two places."""
    ABORTED_READ = "aborted read"
    """A value was read whose send failed for certain."""
    PHANTOM_READ = "phantom read"
    """A value was read that nobody sent to that topic and partition."""
    INCONSISTENT_OFFSET = "inconsistent offset"
    """One offset, two values: in what was read, in what was acknowledged, or between the two."""
    NONMONOTONIC_POLL = "nonmonotonic poll"
    """An assignment was given an offset at or below one that it was given before."""
    SKIPPING_POLL = "skipping poll"
    """An assignment was not given a record between two that it was given."""
    NONMONOTONIC_SEND = "nonmonotonic send"
    """Of two acknowledged sends of one idempotent producer, the later has the lower offset."""
    PARTIAL_TRANSACTION = "partial transaction"
    """G1b: of a transaction whose outcome is unknown, some records were read, and others are not there."""
    CYCLE = "cycle"
    """G1c: transactions that have read from each other, in a circle."""
    CONSUMED_TWICE = "consumed twice"
    """Two committed transactions of a group have consumed the same record."""
    UNCONSUMED = "unconsumed"
    """A group has gone on behind a record that no transaction of it can have consumed."""
    ABORTED_OFFSETS = "aborted offsets"
    """A group has an offset that only an aborted transaction left it."""
    LOST_OFFSETS = "lost offsets"
    """A group has a lower offset than a committed transaction left it."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One violation."""

    kind: Kind
    place: Place | None
    offset: int | None
    what: str
    proof: tuple[int, ...]
    """Positions in the history of the operations that contradict each other; for an absence, those that show it."""
