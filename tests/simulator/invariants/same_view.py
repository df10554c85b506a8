"""Whoever keeps the last value of each key has the same as everybody else, from whichever replica he reads
(coordinated-compaction.md, section 5, invariant 1): what was committed last of each key, from the log start on."""

from __future__ import annotations

from collections.abc import Iterable

from storage.log_types import GroupKey
from tests.simulator.written import Record, Written


def check_view(
    key: GroupKey,
    written: Written,
    records: Iterable[Record],
    start_offset: int,
    whose: str,
    *,
    misses_tombstones: bool = False,
) -> None:
    """`records`: what somebody holds or has read of everything that is committed, in order, without what was aborted.
    Of a deleted key there may be the tombstone, or nothing. `misses_tombstones`: it took so long to read that of a
    deleted key there may also be a value from before."""
    view = {record.key: record for record in records if record.key is not None}
    for record_key, newest in written.newest().items():
        if newest.offset < start_offset:
            continue
        held = view.pop(record_key, None)
        if misses_tombstones and newest.is_tombstone and held is not None and held.offset < newest.offset:
            continue
        assert held == newest or (held is None and newest.is_tombstone), (
            f"{whose} has {held} of {record_key!r} in {key}, committed last was {newest}"
        )
    left = [record for record in view.values() if record.offset >= start_offset]
    assert not left, f"{whose} has {left} in {key}, which was not committed"
