"""Before a segment is rewritten, the journal says durably how far that may go (`Bounds.rewritten_end`): what producers
wrote there cannot be replayed any more, so a snapshot of them has to stay (broker/compaction/README.md)."""

from __future__ import annotations

from storage.journal_records import Bounds
from storage.log_types import GroupKey


def check_recorded(key: GroupKey, swapped_base: int, durable: Bounds | None) -> None:
    """A segment that begins there has taken the place of another one. `durable`: what the disk surely keeps."""
    recorded = 0 if durable is None else durable.rewritten_end
    assert recorded > swapped_base, (
        f"the segment of {key} at {swapped_base} is another one, recorded is rewriting up to {recorded}"
    )
