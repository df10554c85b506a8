"""Log matching: entries of the same index and term are the same, and so is everything before them (Raft,
figure 3). By induction it is enough that such entries agree in content and in the term of the entry before.

It holds for ever, truncated entries included: a term has one leader, and that appends only. Compaction writes committed
batches anew. What it has left counts as what was committed there, once it is found to be that.
"""

from __future__ import annotations

from collections.abc import Iterator

from protocol.records.batch import BatchHeader
from raft.types import NO_TERM
from storage.log import Log
from storage.log_reader import StoredBatch
from storage.log_types import GroupKey
from tests.simulator.invariants.one_value_per_offset import OneValuePerOffset
from tests.simulator.swaps import SwapWatch


class LogMatching:
    def __init__(self, values: OneValuePerOffset) -> None:
        self._values = values
        self._entries: dict[tuple[GroupKey, int, int], tuple[object, ...]] = {}
        #: Of each log: how far it was compared, and after how many truncations.
        self._compared: dict[Log, tuple[int, int, int]] = {}
        self._swaps = SwapWatch()

    def scan(self, key: GroupKey, log: Log) -> None:
        rows, lineage = log.lineage.rows, log.lineage
        offset, row_count, truncations = self._compared.get(log, (0, 0, 0))
        if truncations != log.truncation_count:
            offset = row_count = 0
        if self._swaps.has_swapped(log):
            offset = 0
        offset = max(offset, log.start_offset)
        for position in range(row_count, len(rows)):
            row = rows[position]
            before = rows[position - 1].term if position else NO_TERM
            self._agree(key, row.index, row.term, (row.kind, row.payload, before))
        is_compacted = self._values.is_compacted(key)
        for stored in log.batches(offset):
            if stored.header.base_offset < offset:
                continue
            for header in self._as_written(key, stored) if is_compacted else (stored.header,):
                index = lineage.index_of(header.base_offset)
                before = lineage.term_at_index(index - 1)
                content = (header.last_offset, header.crc, before)
                self._agree(key, index, header.leader_epoch, content)
        self._compared[log] = (log.end_offset, len(rows), log.truncation_count)

    def _as_written(self, key: GroupKey, stored: StoredBatch) -> Iterator[BatchHeader]:
        header = stored.header
        original = self._values.original(key, header.base_offset)
        # What another term has at an offset was never committed, so nobody has compacted it.
        is_of_term = original is not None and original.leader_epoch == header.leader_epoch
        if header.is_filler or (is_of_term and original != header):
            self._values.check(key, header, stored.view())
            yield from self._values.originals(key, header)
        else:
            yield header

    def _agree(self, key: GroupKey, index: int, term: int, content: tuple[object, ...]) -> None:
        known = self._entries.setdefault((key, index, term), content)
        assert known == content, f"entry {index} of term {term} in {key} is {known} and {content}"
