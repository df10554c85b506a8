"""What one replica has dropped by expiry, no member needs any more: none holds, now or later, an older value of the key
of a dropped tombstone without a newer record of it, or transactional data without the marker that ends it
(coordinated-compaction.md, section 5, invariant 5)."""

from __future__ import annotations

from collections.abc import Sequence

from storage.log_types import GroupKey
from tests.simulator.written import Record, Stored, Written, counted


class ExpiredIsSafe:
    def __init__(self) -> None:
        #: By group and key: the offset of the newest tombstone that some replica has dropped.
        self._tombstones: dict[GroupKey, dict[bytes, int]] = {}

    def dropped(self, key: GroupKey, tombstone: Record) -> bool:
        """By expiry. Returns whether nobody knew it."""
        assert tombstone.key is not None
        known = self._tombstones.setdefault(key, {})
        is_new = known.get(tombstone.key, -1) < tombstone.offset
        if is_new:
            known[tombstone.key] = tombstone.offset
        return is_new

    def end_offset(self, key: GroupKey) -> int:
        """Below it lies everything that was dropped. Who has got so far cannot get anything older any more."""
        return max(self._tombstones.get(key, {}).values(), default=-1) + 1

    def check(
        self, key: GroupKey, written: Written, batches: Sequence[Stored], start_offset: int, end_offset: int
    ) -> None:
        """All that a member holds, between its log start and where it knows to be committed."""
        dropped = self._tombstones.get(key)
        if dropped:
            newest = {record.key: record.offset for record in counted(written, batches, start_offset)}
            for record_key, offset in dropped.items():
                held = newest.get(record_key, offset)
                assert held >= offset, (
                    f"a log of {key} still holds the record of {record_key!r} at {held}; its tombstone at {offset} "
                    "has expired elsewhere"
                )
        _check_markers(key, written, batches, end_offset)


def _check_markers(key: GroupKey, written: Written, batches: Sequence[Stored], end_offset: int) -> None:
    markers = {header.base_offset for header, _ in batches if header.is_control and header.count}
    for header, _ in batches:
        original = written.at(header.base_offset)
        if header.is_control or not header.is_transactional or not header.count or original is None:
            continue
        ends_at = original.marker_offset
        assert ends_at is None or ends_at >= end_offset or ends_at in markers, (
            f"a log of {key} holds {header.base_offset} with the transactional bit, and not the marker at {ends_at}"
        )
