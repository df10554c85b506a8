"""The lineage as raft sees it: which term, which configuration, which offset stands at an index."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from raft.types import NO_TERM, Configuration, Row, RowKind


class Rows:
    """Rows in index order. Every entry that is not a row is a record, so row k stands at offset index - k."""

    __slots__ = ("_configurations", "_indexes", "_offsets", "last_index", "last_term", "rows")

    def __init__(self, rows: Sequence[Row] = ()) -> None:
        self.rows: list[Row] = []
        self._indexes: list[int] = []
        self._offsets: list[int] = []
        #: Rows of kind CONFIGURATION.
        self._configurations: list[Row] = []
        #: Index and term of the last row; -1 and NO_TERM without rows.
        self.last_index = -1
        self.last_term = NO_TERM
        for row in rows:
            self.append(row)

    def __len__(self) -> int:
        return len(self.rows)

    def append(self, row: Row) -> None:
        assert row.index > self.last_index, (row, self.last_index)
        assert row.term >= self.last_term, (row, self.last_term)
        assert (row.kind is RowKind.CONFIGURATION) == (row.configuration is not None), row
        self._offsets.append(row.index - len(self.rows))
        self._indexes.append(row.index)
        self.rows.append(row)
        if row.kind is RowKind.CONFIGURATION:
            self._configurations.append(row)
        self.last_index = row.index
        self.last_term = row.term

    def truncate(self, end: int) -> None:
        """Drop rows at or above index `end`."""
        count = bisect_left(self._indexes, end)
        del self.rows[count:], self._indexes[count:], self._offsets[count:]
        while self._configurations and self._configurations[-1].index >= end:
            self._configurations.pop()
        self.last_index = self._indexes[-1] if count else -1
        self.last_term = self.rows[-1].term if count else NO_TERM

    def term_before(self, end: int) -> int:
        """Term of the entry at `end` - 1, NO_TERM for end 0."""
        if end > self.last_index:
            return self.last_term if end > 0 else NO_TERM
        count = bisect_left(self._indexes, end)
        return self.rows[count - 1].term if count else NO_TERM

    def count_below(self, end: int) -> int:
        """How many rows have an index below `end`."""
        return len(self.rows) if end > self.last_index else bisect_left(self._indexes, end)

    def between(self, start: int, end: int) -> list[Row]:
        """Rows with start <= index < end."""
        if start > self.last_index:
            return []
        return self.rows[bisect_left(self._indexes, start) : bisect_left(self._indexes, end)]

    def next_index(self, start: int) -> int | None:
        """Index of the first row at or above `start`."""
        if start > self.last_index:
            return None
        return self._indexes[bisect_left(self._indexes, start)]

    def common_end(self, end: int, term: int) -> int:
        """The largest e <= end such that no entry below e has a term above `term`.

        If the other log differs before `end` and its last entry there has `term`, the two can agree at most up to here:
        terms never fall along a log. One step of the search skips a whole term (Raft section 5.3, last paragraph).
        """
        count = bisect_right(self.rows, term, key=lambda row: row.term)
        return min(end, self._indexes[count]) if count < len(self.rows) else end

    def newest_configuration(self) -> Row | None:
        return self._configurations[-1] if self._configurations else None

    def configuration_before(self, end: int) -> Configuration | None:
        """The newest configuration whose row is below index `end`."""
        rows = (row for row in reversed(self._configurations) if row.index < end)
        return next((row.configuration for row in rows), None)

    def committed_configuration(self, commit_end: int) -> Configuration | None:
        """The newest configuration that is surely committed, where everything below `commit_end` is known to be.

        A change is appended only when the one before it is committed. So all but the newest are committed, also if a
        restart has lost the commit index. The first one is the founding configuration, which needs no commit.
        """
        rows = self._configurations
        if not rows:
            return None
        is_newest = rows[-1].index < commit_end or len(rows) == 1
        return rows[-1 if is_newest else -2].configuration

    def rows_below_offset(self, offset: int) -> tuple[Row, ...]:
        return tuple(self.rows[: bisect_left(self._offsets, offset)])

    def first_index_at(self, offset: int) -> int:
        """The lowest index whose entry stands at or above `offset`: rows at `offset`, then its record."""
        return offset + bisect_left(self._offsets, offset)
