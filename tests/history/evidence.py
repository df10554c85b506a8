"""The first pass over a history: what was sent, what was read where, and what is odd within one consumer's polls.

Everything is kept by offset or by value, so that each record costs the same however long the history is.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from tests.history.findings import Finding, Kind
from tests.history.operations import (
    Assign,
    Committed,
    HistoryError,
    Operation,
    Place,
    Poll,
    Read,
    Record,
    Seek,
    Send,
    Topic,
    Transaction,
)


class Seen(NamedTuple):
    """A value, and the operation that first showed it."""

    value: str
    position: int


class Gap(NamedTuple):
    """A reader went from `start` to `end` without a record between; judged when all that was there is known."""

    place: Place
    start: int
    end: int
    proof: tuple[int, ...]
    where: str


@dataclass(slots=True)
class PartitionEvidence:
    """What is known of one partition."""

    reads: dict[int, Seen] = field(default_factory=dict)
    """The first value read at each offset."""
    end: int = 0
    """The first offset that no reader has passed."""
    last_reader: int | None = None
    """The operation that reached `end`."""


@dataclass(slots=True)
class _Position:
    """Where a consumer is in a partition."""

    next_offset: int
    operation: int
    """That brought it there."""


class Evidence:
    """`add` every operation with its position, then read the fields."""

    def __init__(self) -> None:
        self.partitions: dict[Place, PartitionEvidence] = {}
        self.sends: dict[str, dict[str, tuple[int, Send]]] = {}
        """By topic and value."""
        self.topics: dict[str, Topic] = {}
        self.transactions: dict[str, tuple[int, Transaction]] = {}
        self.transactional_reads: list[tuple[str, str, str, int]] = []
        """(transaction, topic, value, operation)"""
        self.committed: dict[tuple[str, str, int], tuple[int | None, int]] = {}
        """By group, topic and partition: the offset in the end, and the operation that tells it."""
        self._ends_read: set[Place] = set()
        self.gaps: list[Gap] = []
        self.findings: list[Finding] = []
        """Those that need no second look."""
        self.operations = 0
        self.records_read = 0
        self.has_looked = False
        """Somebody was given a record, or told for certain that there is none."""
        self._assignments: dict[str, int] = {}
        self._positions: dict[str, dict[Place, _Position]] = {}

    def add(self, position: int, operation: Operation) -> None:
        """Take one operation in; those of one process in the order in which they ended. Raises HistoryError."""
        self.operations += 1
        match operation:
            case Send():
                self._add_send(position, operation)
            case Poll():
                self._add_poll(position, operation)
            case Assign():
                self._enter(operation.process, operation.assignment)
                positions = self._positions[operation.process]
                for place, start in operation.starts.items():
                    if start is not None:
                        positions[place] = _Position(start, position)
            case Seek():
                positions = self._positions.setdefault(operation.process, {})
                positions.pop(operation.place, None)
                if operation.offset is not None:
                    positions[operation.place] = _Position(operation.offset, position)
            case Transaction():
                if operation.name in self.transactions:
                    raise HistoryError(f"transaction {operation.name!r} has ended twice")
                self.transactions[operation.name] = (position, operation)
            case Committed():
                for group_place, offset in operation.offsets.items():
                    self.committed[group_place] = (offset, position)
            case Read():
                self._add_read(position, operation)
            case Topic():
                self.topics[operation.name] = operation

    def has_gaps(self, topic: str) -> bool:
        return topic in self.topics and self.topics[topic].has_gaps

    def is_compacted(self, topic: str) -> bool:
        return topic in self.topics and self.topics[topic].is_compacted

    def is_read_to_the_end(self, place: Place) -> bool:
        """Somebody has read all that the partition held. Then what was not read is not there."""
        return place in self._ends_read

    def _add_send(self, position: int, send: Send) -> None:
        sends = self.sends.setdefault(send.topic, {})
        if send.value in sends:
            raise HistoryError(
                f"{send.value!r} was sent twice to {send.topic}: values must be unique, or nothing can be told apart"
            )
        sends[send.value] = (position, send)

    def _enter(self, process: str, assignment: int) -> None:
        if self._assignments.get(process) != assignment:
            self._assignments[process] = assignment
            self._positions[process] = {}

    def _add_poll(self, position: int, poll: Poll) -> None:
        self._enter(poll.process, poll.assignment)
        positions = self._positions[poll.process]
        for record in poll.records:
            place = (record.topic, record.partition)
            before = positions.get(place)
            if before is not None and record.offset != before.next_offset:
                self._step(position, record, before)
            positions[place] = _Position(record.offset + 1, position)
            self._see(position, place, record)
            if poll.transaction is not None:
                self.transactional_reads.append((poll.transaction, record.topic, record.value, position))

    def _step(self, position: int, record: Record, before: _Position) -> None:
        """A record that does not follow the one before."""
        place = (record.topic, record.partition)
        is_internal = before.operation == position
        where = "within one poll" if is_internal else "between polls of one assignment"
        proof = (position,) if is_internal else (before.operation, position)
        if record.offset > before.next_offset:
            self.gaps.append(Gap(place, before.next_offset, record.offset, proof, where))
            return
        what = f"offset {record.offset} where {before.next_offset} was next, {where}"
        self.findings.append(Finding(Kind.NONMONOTONIC_POLL, place, record.offset, what, proof))

    def _add_read(self, position: int, read: Read) -> None:
        self.has_looked = True
        self._ends_read.add(read.place)
        expected = read.start
        for record in read.records:
            if record.offset < expected:
                what = f"offset {record.offset} where {expected} was next, within one read"
                self.findings.append(
                    Finding(Kind.NONMONOTONIC_POLL, read.place, record.offset, what, (position,))
                )
            elif record.offset > expected:
                self.gaps.append(Gap(read.place, expected, record.offset, (position,), "within one read"))
            expected = record.offset + 1
            self._see(position, read.place, record)
        if expected < read.end:
            self.gaps.append(Gap(read.place, expected, read.end, (position,), "within one read"))
        self._reach(read.place, read.end, position)

    def _see(self, position: int, place: Place, record: Record) -> None:
        self.records_read += 1
        self.has_looked = True
        partition = self._reach(place, record.offset + 1, position)
        seen = partition.reads.get(record.offset)
        if seen is None:
            partition.reads[record.offset] = Seen(record.value, position)
        elif seen.value != record.value:
            what = f"{seen.value!r} was read there, and {record.value!r}"
            proof = (seen.position, position)
            self.findings.append(Finding(Kind.INCONSISTENT_OFFSET, place, record.offset, what, proof))

    def _reach(self, place: Place, end: int, position: int) -> PartitionEvidence:
        partition = self.partitions.get(place)
        if partition is None:
            partition = self.partitions[place] = PartitionEvidence()
        if end > partition.end:
            partition.end, partition.last_reader = end, position
        return partition
