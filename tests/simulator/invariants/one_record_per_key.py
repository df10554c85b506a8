"""Below a replica's MCCO every key has at most one record (coordinated-compaction.md, section 5, invariant 7), and
below its MXFO no data carry the transactional bit (section 1). Both are what MTRO and MXRO are made of."""

from __future__ import annotations

from collections.abc import Iterable

from storage.log_types import GroupKey
from tests.simulator.written import Stored, records_of


def check_clean(
    key: GroupKey, batches: Iterable[Stored], start_offset: int, clean_end: int, transaction_free_end: int
) -> None:
    """A replica's log. `clean_end`: its MCCO; `transaction_free_end`: its MXFO."""
    found = first_unclean(batches, start_offset, clean_end, transaction_free_end)
    assert found is None, f"{found} of {key}, MCCO is {clean_end}, MXFO is {transaction_free_end}"


def first_unclean(
    batches: Iterable[Stored], start_offset: int, clean_end: int, transaction_free_end: int
) -> str | None:
    """What in a log contradicts that it is cleaned below `clean_end` and `transaction_free_end`. None: nothing."""
    offsets: dict[bytes, int] = {}
    for header, batch in batches:
        if header.is_control or not header.count:
            continue
        if header.is_transactional and header.next_offset <= transaction_free_end:
            return f"{header.base_offset} has the transactional bit"
        if header.base_offset >= clean_end:
            continue
        for record in records_of(batch):
            if record.key is None or not start_offset <= record.offset < clean_end:
                continue
            known = offsets.setdefault(record.key, record.offset)
            if known != record.offset:
                return f"{record.key!r} has records at {known} and {record.offset}"
    return None
