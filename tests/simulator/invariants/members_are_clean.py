"""Below MTRO no member has two records of a key, and below MXRO none has transactional data: that is what the bounds
say of the members (coordinated-compaction.md, section 1).

It holds from the moment at which anybody knows the bound. So a bound that rose too far is noticed before it has done
any damage.
"""

from __future__ import annotations

from collections.abc import Iterable

from storage.journal_records import Bounds
from storage.log_types import GroupKey
from tests.simulator.invariants.one_record_per_key import first_unclean
from tests.simulator.written import Stored


def check_member(key: GroupKey, batches: Iterable[Stored], start_offset: int, bounds: Bounds) -> None:
    """The log of a voter. `bounds`: the highest that any replica ever knew."""
    found = first_unclean(batches, start_offset, bounds.mtro, bounds.mxro)
    assert found is None, f"{found} in a member's log of {key}, MTRO is {bounds.mtro}, MXRO is {bounds.mxro}"
