"""Nothing at or above the bound disappears by expiry: a tombstone only below MTRO, a marker and its remnant only below
MXRO (coordinated-compaction.md, section 5, invariant 6).

A replica may hold what another one has removed, and that one may know a higher bound. So the bound is the highest that
any replica of the group ever knew.
"""

from __future__ import annotations

from storage.journal_records import Bounds
from storage.log_types import GroupKey
from tests.simulator.invariants.nothing_missing import Reason
from tests.simulator.written import Original


def check_expired(key: GroupKey, original: Original, reason: Reason, bounds: Bounds) -> None:
    """A record of this batch is gone for this reason."""
    if reason is Reason.TOMBSTONE:
        name, bound = "MTRO", bounds.mtro
    elif reason is Reason.MARKER:
        name, bound = "MXRO", bounds.mxro
    else:
        return
    header = original.header
    assert header.next_offset <= bound, (
        f"{header.base_offset} to {header.last_offset} of {key}: {reason.value}, and {name} is {bound}"
    )
