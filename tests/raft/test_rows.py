"""Look-ups in the lineage against a log that is spelt out."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from raft.rows import Rows
from raft.types import NO_TERM, Configuration, Row, RowKind
from tests.raft.cluster import replica


@st.composite
def spelt_logs(draw: st.DrawFn) -> list[tuple[int, bool]]:
    """(term, is a row) per index: every term begins with a row, and there may be more rows."""
    log: list[tuple[int, bool]] = []
    term = 0
    for _ in range(draw(st.integers(1, 6))):
        log.append((term, True))
        log.extend((term, is_row) for is_row in draw(st.lists(st.booleans(), max_size=5)))
        term += draw(st.integers(1, 3))
    return log


def rows_of(log: list[tuple[int, bool]]) -> Rows:
    return Rows(
        [
            Row(index, term, RowKind.CONFIGURATION, Configuration((replica(index + 1),), ()))
            for index, (term, is_row) in enumerate(log)
            if is_row
        ]
    )


@given(spelt_logs())
def test_terms_rows_and_offsets(log: list[tuple[int, bool]]) -> None:
    rows = rows_of(log)
    offsets = [sum(not is_row for _, is_row in log[:index]) for index in range(len(log) + 1)]
    for end in range(len(log) + 1):
        assert rows.term_before(end) == (log[end - 1][0] if end else NO_TERM)
        after = [index for index in range(end, len(log)) if log[index][1]]
        assert rows.next_index(end) == (after[0] if after else None)
        assert [row.index for row in rows.between(end, len(log))] == after
        *before, newest = [index for index in range(len(log)) if log[index][1]]
        committed = newest if newest < end or not before else before[-1]
        configuration = rows.committed_configuration(end)
        assert configuration is not None and configuration.voters == (replica(committed + 1),)
    for offset in range(offsets[-1] + 1):
        first = next(index for index in range(len(log) + 1) if offsets[index] >= offset)
        assert rows.first_index_at(offset) == first
        assert len(rows.rows_below_offset(offset)) == first - offset


@given(spelt_logs(), st.data())
def test_truncation_is_as_if_never_written(log: list[tuple[int, bool]], data: st.DataObject) -> None:
    end = data.draw(st.integers(0, len(log)))
    rows, expected = rows_of(log), rows_of(log[:end])
    rows.truncate(end)
    assert rows.rows == expected.rows
    assert (rows.last_index, rows.last_term) == (expected.last_index, expected.last_term)
    assert rows.newest_configuration() == expected.newest_configuration()
    for offset in range(len(log)):
        assert rows.first_index_at(offset) == expected.first_index_at(offset)


@given(spelt_logs(), st.integers(0, 40), st.integers(-1, 20))
def test_the_common_end_excludes_what_cannot_agree(log: list[tuple[int, bool]], end: int, term: int) -> None:
    end = min(end, len(log))
    expected = sum(entry_term <= term for entry_term, _ in log[:end])
    assert rows_of(log).common_end(end, term) == expected
