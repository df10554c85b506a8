"""No committed record is missing unless it is superseded, deleted or below the log start, and no record of an aborted
transaction is read as a committed one (coordinated-compaction.md, section 5, invariant 2; section 3 for the rules)."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from storage.aborted_index import AbortedTransaction
from storage.compaction.aborted_data import AbortedData
from storage.log_types import GroupKey
from tests.simulator.written import Original, Record, Stored, Written


class Reason(Enum):
    """Why a record may be gone."""

    KEYLESS = "it has no key"
    ABORTED = "its transaction was aborted"
    SUPERSEDED = "its key has a newer record"
    TOMBSTONE = "it is a tombstone that has expired"
    MARKER = "it is a marker that has expired"


def reason_of(key: GroupKey, written: Written, original: Original, record: Record) -> Reason:
    """Of a record that compaction has removed. Whether something was allowed to expire is another question."""
    if original.header.is_control:
        assert original.is_commit is not None, (
            f"{record} of {key} is gone, a control record of an unknown type"
        )
        return Reason.MARKER
    assert original.is_committed is not None, f"{record} of {key} is gone, its transaction is open"
    if not original.is_committed:
        return Reason.ABORTED
    if record.key is None:
        return Reason.KEYLESS
    if written.is_superseded(record):
        return Reason.SUPERSEDED
    assert record.is_tombstone, f"{record} of {key} is gone, and is the last value of its key"
    return Reason.TOMBSTONE


def check_whole(key: GroupKey, batches: Iterable[Stored], start_offset: int, end_offset: int) -> None:
    """Every offset of a log is in some batch."""
    reached = start_offset
    for header, _ in batches:
        assert header.base_offset <= reached, f"{key} has a hole from {reached} to {header.base_offset}"
        reached = max(reached, header.next_offset)
    assert reached >= end_offset, f"{key} ends at {reached}, not at {end_offset}"


def check_readers_of_committed(
    key: GroupKey, written: Written, batches: Iterable[Stored], aborted: Iterable[AbortedTransaction]
) -> None:
    """What a replica's log gives to readers that are told these aborted transactions: they leave out exactly what was
    aborted."""
    told = AbortedData(aborted)
    for header, _ in batches:
        original = written.at(header.base_offset)
        if header.is_control or not header.count or original is None or original.is_committed is None:
            continue
        is_left_out = told.covers(header)
        assert is_left_out != original.is_committed, (
            f"{header.base_offset} of {key} is {'left out' if is_left_out else 'read'}, its transaction is "
            f"{'committed' if original.is_committed else 'aborted'}"
        )
