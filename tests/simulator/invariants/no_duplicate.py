"""An idempotent producer's sequence is committed at one offset only (KIP-98; replication.md section 8). A batch takes a
sequence for each of its offsets, also for those whose records compaction has removed."""

from __future__ import annotations

from protocol.records.batch import BatchHeader
from storage.log_types import GroupKey


class NoDuplicate:
    def __init__(self) -> None:
        self._offsets: dict[tuple[GroupKey, int, int, int], int] = {}

    def seen(self, key: GroupKey, header: BatchHeader) -> None:
        """Of a committed batch."""
        for delta in range(header.last_offset_delta + 1):
            sequence = (key, header.producer_id, header.producer_epoch, header.base_sequence + delta)
            offset = header.base_offset + delta
            known = self._offsets.setdefault(sequence, offset)
            assert known == offset, f"{sequence} stands at {known} and at {offset}"
