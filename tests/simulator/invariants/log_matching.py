"""Log matching: entries of the same index and term are the same, and so is everything before them (Raft,
figure 3). By induction it is enough that such entries agree in content and in the term of the entry before.

It holds for ever, truncated entries included: a term has one leader, and that appends only.
"""

from __future__ import annotations

from raft.types import NO_TERM
from storage.log import Log
from storage.log_types import GroupKey


class LogMatching:
    def __init__(self) -> None:
        self._entries: dict[tuple[GroupKey, int, int], tuple[object, ...]] = {}
        #: Of each log: how far it was compared, and after how many truncations.
        self._compared: dict[Log, tuple[int, int, int]] = {}

    def scan(self, key: GroupKey, log: Log) -> None:
        rows, lineage = log.lineage.rows, log.lineage
        offset, row_count, truncations = self._compared.get(log, (0, 0, 0))
        if truncations != log.truncation_count:
            offset = row_count = 0
        offset = max(offset, log.start_offset)
        for position in range(row_count, len(rows)):
            row = rows[position]
            before = rows[position - 1].term if position else NO_TERM
            self._agree(key, row.index, row.term, (row.kind, row.payload, before))
        for stored in log.batches(offset):
            header = stored.header
            if header.base_offset < offset:
                continue
            index = lineage.index_of(header.base_offset)
            before = lineage.term_at_index(index - 1)
            content = (header.last_offset, header.crc, before)
            self._agree(key, index, header.leader_epoch, content)
        self._compared[log] = (log.end_offset, len(rows), log.truncation_count)

    def _agree(self, key: GroupKey, index: int, term: int, content: tuple[object, ...]) -> None:
        known = self._entries.setdefault((key, index, term), content)
        assert known == content, f"entry {index} of term {term} in {key} is {known} and {content}"
