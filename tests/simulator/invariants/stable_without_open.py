"""The last stable offset is the high watermark when no transaction is open, and else where the first open one begins
(coordinated-compaction.md, section 5, invariant 3): compaction must not leave a reader of committed data stuck."""

from __future__ import annotations

from storage.log_types import GroupKey
from tests.simulator.written import Written


def check_stable(
    key: GroupKey, written: Written, start_offset: int, high_watermark: int, last_stable_offset: int
) -> None:
    """Of a replica that knows all that is committed in the group."""
    assert high_watermark == written.end_offset, f"{key} is committed up to {written.end_offset}"
    first_open = written.first_open_offset()
    lowest = highest = high_watermark
    if first_open is not None:
        # What is deleted is not waited for. A replica may not know yet that a majority has its log start.
        lowest, highest = first_open, max(first_open, start_offset)
    assert lowest <= last_stable_offset <= highest, (
        f"{key} is stable below {last_stable_offset}, the first open transaction begins at {first_open}, "
        f"committed is all below {high_watermark}"
    )
