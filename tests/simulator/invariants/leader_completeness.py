"""Leader completeness: an entry that is committed in some term is in the log of every leader of a later one (Raft,
figure 3), lineage rows and unacknowledged batches included. One of an earlier term, that was deposed and has not heard
of it, need not have it."""

from __future__ import annotations

from broker.replication.replica import Replica
from storage.log_types import GroupKey


class LeaderCompleteness:
    def __init__(self) -> None:
        #: By group: index of a committed row, or of a committed batch's first record -> its term, and the term in which
        #: it was committed. By log matching, index and term say which entry it is.
        self._committed: dict[GroupKey, dict[int, tuple[int, int]]] = {}
        #: By group: how many lineage rows are in it.
        self._row_counts: dict[GroupKey, int] = {}

    def batch_committed(self, replica: Replica, base_offset: int) -> None:
        index = replica.log.lineage.index_of(base_offset)
        term = replica.log.lineage.term_at_index(index)
        self._committed.setdefault(replica.key, {}).setdefault(index, (term, replica.group.term))

    def rows_committed(self, replica: Replica) -> None:
        """Those below the commit index. Rows are never dropped, so their number says which are known."""
        lineage, commit_end = replica.log.lineage, replica.group.commit_end
        known, end = self._row_counts.get(replica.key, 0), lineage.rows_below_index(commit_end)
        for row in lineage.rows[known:end]:
            self._committed.setdefault(replica.key, {}).setdefault(row.index, (row.term, replica.group.term))
        self._row_counts[replica.key] = max(known, end)

    def check(self, replica: Replica) -> None:
        """It leads, from now on or already."""
        log, lineage = replica.log, replica.log.lineage
        kept_from = lineage.index_of(log.start_offset)
        for index, (term, committed_in) in self._committed.get(replica.key, {}).items():
            if committed_in > replica.group.term:
                continue
            if index < kept_from and not any(row.index == index for row in lineage.rows):
                continue
            found = lineage.term_at_index(index) if index < log.end_index else None
            assert found == term, (
                f"entry {index} of term {term} of {replica.topic}-{replica.partition} is committed; "
                f"{replica.group.self_id}, leader of term {replica.group.term}, has one of term {found}"
            )
