"""Below MTRO every key has at most one record in each member's log, which is the newest below it. Below MXRO no member
has transactional data. That is what the bounds say of the members (coordinated-compaction.md, section 1).

It holds from the moment at which anybody knows the bound. So a bound that rose too far is noticed before it has done
any damage.
"""

from __future__ import annotations

from collections.abc import Sequence

from storage.journal_records import Bounds
from storage.log import Log
from storage.log_types import GroupKey
from tests.simulator.invariants.one_record_per_key import first_unclean
from tests.simulator.written import Stored, Written, counted


def check_handed_on(key: GroupKey, log: Log, mxro: int) -> None:
    """What lies below the log start of a voter, and a new replica is sent all the same."""
    if log.install_offset < min(mxro, log.start_offset):
        below = log.checked_batches(log.install_offset, log.start_offset)
        found = first_unclean(below, log.start_offset, 0, mxro)
        assert found is None, f"{found} below the log start of a member's log of {key}, MXRO is {mxro}"


def check_member(
    key: GroupKey, written: Written, batches: Sequence[Stored], start_offset: int, bounds: Bounds
) -> None:
    """The log of a voter. `bounds`: the highest that any replica ever knew."""
    found = first_unclean(batches, start_offset, bounds.mtro, bounds.mxro)
    assert found is None, (
        f"{found} in a member's log of {key} from {start_offset} on, MTRO is {bounds.mtro}, MXRO is {bounds.mxro}"
    )
    newest_of = written.newest()
    for record in counted(written, batches, start_offset):
        if record.key is not None and record.offset < bounds.mtro:
            newest = newest_of[record.key]
            assert record.offset == newest.offset or newest.offset >= bounds.mtro, (
                f"a member's log of {key} holds {record.key!r} at {record.offset}, which is superseded at "
                f"{newest.offset}; MTRO is {bounds.mtro}"
            )
