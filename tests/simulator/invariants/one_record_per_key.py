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
    offsets: dict[bytes, int] = {}
    for header, batch in batches:
        if header.is_control or not header.count:
            continue
        assert not header.is_transactional or header.base_offset >= transaction_free_end, (
            f"{header.base_offset} of {key} has the transactional bit, MXFO is {transaction_free_end}"
        )
        if header.base_offset >= clean_end:
            continue
        for record in records_of(batch):
            if record.key is None or not start_offset <= record.offset < clean_end:
                continue
            known = offsets.setdefault(record.key, record.offset)
            assert known == record.offset, (
                f"{record.key!r} has records at {known} and {record.offset} of {key}, MCCO is {clean_end}"
            )
