"""Reading much of a log in steps, between which anything may happen to it."""

from __future__ import annotations

from collections.abc import Iterator

from protocol.records.batch import BatchHeader
from storage.log import Log

#: Batches of one walk. Even a node with much else to do is done with them long before the bytes are freed of a segment
#: that compaction has replaced (`FileDisk.remove_later`).
BATCHES_PER_WALK = 50


def checked_batches_in_short_walks(
    log: Log, from_offset: int, below_offset: int
) -> Iterator[tuple[BatchHeader, memoryview]]:
    """As `Log.checked_batches`, for whoever pauses between two batches. A walk reads on in the segments that it has
    found, and their files are cut some time after others have taken their place. What is deleted between two walks is
    left out. Raises CorruptLogError."""
    while (from_offset := max(from_offset, log.first_stored_offset)) < below_offset:
        walk = log.checked_batches(from_offset, below_offset)
        for count, (header, batch) in enumerate(walk, 1):
            yield header, batch
            from_offset = header.next_offset
            if count == BATCHES_PER_WALK:
                break
