"""The operations of a history, and how they are read from JSON lines (the format is in README.md)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

Place = tuple[str, int]
"""Topic and partition."""


class HistoryError(Exception):
    """A line that is no operation, or a history from which nothing can be concluded."""


class Record(NamedTuple):
    """One record that a consumer was given."""

    topic: str
    partition: int
    offset: int
    value: str


@dataclass(frozen=True, slots=True)
class Send:
    """One record handed to a producer, and what became of it."""

    process: str
    topic: str
    partition: int | None
    """None where the client never learnt it."""
    key: str | None
    value: str
    """No two sends of a history to one topic have the same."""
    outcome: str
    """`ok`; `failed`: it will certainly never be in the log; `unknown`: either."""
    offset: int | None
    """Of an `ok`; None where the broker confirmed a repetition without naming the place."""
    begin_ns: int
    """Orders the sends of one process."""
    is_idempotent: bool
    transaction: str | None
    """The transaction that it belongs to."""


@dataclass(frozen=True, slots=True)
class Assign:
    """From here on the process reads these partitions, from these offsets (None: not known beforehand)."""

    process: str
    assignment: int
    starts: dict[Place, int | None]


@dataclass(frozen=True, slots=True)
class Seek:
    """The next record of the partition is the one at this offset, or after it."""

    process: str
    place: Place
    offset: int | None


@dataclass(frozen=True, slots=True)
class Poll:
    """What one call gave to a consumer, in that order."""

    process: str
    assignment: int
    records: list[Record]
    transaction: str | None
    """The transaction that the records were read for."""


@dataclass(frozen=True, slots=True)
class Transaction:
    """A transaction that has ended, and what became of it."""

    name: str
    outcome: str
    """`ok`: committed; `failed`: certainly aborted; `unknown`: either."""
    offsets: list[tuple[tuple[str, str, int], int, int]]
    """((group, topic, partition), first offset, offset behind the last): the records that it has consumed, and whose
    offsets it commits."""


@dataclass(frozen=True, slots=True)
class Committed:
    """The offsets that a group has in the end, while no transaction is open. None: it has none."""

    offsets: dict[tuple[str, str, int], int | None]


@dataclass(frozen=True, slots=True)
class Read:
    """All that a partition held from `start` up to, not including, `end`."""

    place: Place
    start: int
    end: int
    records: list[Record]


@dataclass(frozen=True, slots=True)
class Topic:
    """What is legitimate in a topic."""

    name: str
    has_gaps: bool
    """Offsets without a record: transaction markers."""
    is_compacted: bool
    """Records may vanish once a later one has their key. Implies gaps."""


@dataclass(frozen=True, slots=True)
class Note:
    """For people; no rule looks at it."""


Operation = Send | Assign | Seek | Poll | Transaction | Committed | Read | Topic | Note


def parse(fields: dict[str, Any]) -> Operation:
    """One decoded line. Raises HistoryError."""
    try:
        parser = _PARSERS[fields["op"]]
    except KeyError:
        raise HistoryError(f"op must be one of {', '.join(_PARSERS)}") from None
    try:
        return parser(fields)
    except KeyError as error:
        raise HistoryError(f"{fields['op']}: {error} is missing") from error
    except (TypeError, ValueError) as error:
        raise HistoryError(f"{fields['op']}: {error}") from error


def read_operations(files: Iterable[Path]) -> Iterator[Operation]:
    """Those of all files, one after the other. Raises HistoryError, which names file and line."""
    for file, number, text in _lines(files):
        try:
            fields = json.loads(text)
            if not isinstance(fields, dict):
                raise HistoryError("not a JSON object")
            yield parse(fields)
        except (HistoryError, ValueError) as error:
            raise HistoryError(f"{file}:{number}: {error}") from error


def lines_of(files: Iterable[Path], wanted: set[int]) -> dict[int, tuple[str, str]]:
    """`file:line` and text of the operations with these positions in `read_operations`."""
    return {
        position: (f"{file}:{number}", text.strip())
        for position, (file, number, text) in enumerate(_lines(files))
        if position in wanted
    }


def _lines(files: Iterable[Path]) -> Iterator[tuple[Path, int, str]]:
    for file in files:
        try:
            with file.open(encoding="utf-8") as lines:
                for number, text in enumerate(lines, 1):
                    if text.strip():
                        yield file, number, text
        except OSError as error:
            raise HistoryError(f"{file}: {error.strerror}") from error


def _send(fields: dict[str, Any]) -> Send:
    outcome, partition, offset = _outcome(fields["outcome"]), fields.get("partition"), fields.get("offset")
    if offset is not None and (outcome != "ok" or partition is None):
        raise ValueError("an offset belongs to an acknowledged send with a partition")
    if type(fields["value"]) is not str:
        raise ValueError("value must be a string")
    return Send(
        fields["process"],
        fields["topic"],
        None if partition is None else _number(partition),
        fields.get("key"),
        fields["value"],
        outcome,
        None if offset is None else _number(offset),
        _number(fields["begin_ns"]),
        bool(fields.get("idempotent", True)),
        fields.get("txn"),
    )


def _assign(fields: dict[str, Any]) -> Assign:
    starts = {
        (topic, _number(partition)): None if offset is None else _number(offset)
        for topic, partition, offset in fields["partitions"]
    }
    return Assign(fields["process"], _number(fields["assignment"]), starts)


def _seek(fields: dict[str, Any]) -> Seek:
    offset = fields["offset"]
    place = (fields["topic"], _number(fields["partition"]))
    return Seek(fields["process"], place, None if offset is None else _number(offset))


def _poll(fields: dict[str, Any]) -> Poll:
    records = [
        Record(topic, partition, offset, value) for topic, partition, offset, value in fields["records"]
    ]
    _check_records(records)
    return Poll(fields["process"], _number(fields["assignment"]), records, fields.get("txn"))


def _transaction(fields: dict[str, Any]) -> Transaction:
    offsets = [
        ((group, topic, _number(partition)), _number(start), _number(end))
        for group, topic, partition, start, end in fields.get("offsets", ())
    ]
    if type(fields["txn"]) is not str:
        raise ValueError("txn must be a string")
    return Transaction(fields["txn"], _outcome(fields["outcome"]), offsets)


def _committed(fields: dict[str, Any]) -> Committed:
    group = fields["group"]
    return Committed(
        {
            (group, topic, _number(partition)): None if offset is None else _number(offset)
            for topic, partition, offset in fields["offsets"]
        }
    )


def _read(fields: dict[str, Any]) -> Read:
    topic, partition = fields["topic"], _number(fields["partition"])
    start, end = _number(fields["start_offset"]), _number(fields["end_offset"])
    records = [Record(topic, partition, offset, value) for offset, value in fields["records"]]
    _check_records(records)
    if any(not start <= record.offset < end for record in records):
        raise ValueError("a record outside of start_offset to end_offset")
    return Read((topic, partition), start, end, records)


def _topic(fields: dict[str, Any]) -> Topic:
    is_compacted = bool(fields.get("compacted", False))
    return Topic(fields["topic"], bool(fields.get("gaps", False)) or is_compacted, is_compacted)


def _outcome(value: object) -> str:
    if value not in ("ok", "failed", "unknown"):
        raise ValueError(f"outcome is {value!r}, not ok, failed or unknown")
    return str(value)


def _number(value: object) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r} is not a whole number from 0 up")
    return value


def _check_records(records: list[Record]) -> None:
    for record in records:
        if (
            type(record.offset) is not int
            or type(record.partition) is not int
            or type(record.value) is not str
        ):
            raise ValueError(f"{list(record)} is no record")


_PARSERS: dict[str, Callable[[dict[str, Any]], Operation]] = {
    "send": _send,
    "assign": _assign,
    "seek": _seek,
    "poll": _poll,
    "txn": _transaction,
    "committed": _committed,
    "read": _read,
    "topic": _topic,
    "note": lambda _: Note(),
}
