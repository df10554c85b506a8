"""`Log.checked_batches`: whatever bit of a durable batch gets corrupt, who acts on the log is told."""

from __future__ import annotations

import itertools

import pytest

from storage.errors import CorruptLogError
from storage.log import Log
from storage.log_types import LogConfig
from tests.storage.helpers import InlineDisk, append, new_log

#: One segment, an index entry for every batch or two.
ONE_SEGMENT = LogConfig(segment_bytes=1 << 20, index_interval_bytes=150)


def _is_told(log: Log, start: int, below: int) -> bool:
    (segment,) = log._segments
    segment._cursors.clear()  # as after a restart
    try:
        list(log.checked_batches(start, below))
    except CorruptLogError:
        return True
    return False


@pytest.mark.parametrize("number", range(4))
def test_no_bit_of_a_batch_rots_unseen(disk: InlineDisk, number: int) -> None:
    """From whichever batch, to whichever batch one reads, the corrupt one between them."""
    log = new_log(disk, ONE_SEGMENT)
    bases = [append(log, count=count, value_bytes=5).base_offset for count in (1, 3, 2, 1)]
    starts, ends = bases[: number + 1], [*bases[number + 1 :], log.end_offset]
    batch = list(log.batches(0))[number]
    whole = bytes(batch.view())
    ranges = list(itertools.product(starts, ends))
    assert not any(_is_told(log, *read) for read in ranges)
    unseen = []
    for at, bit in itertools.product(range(len(whole)), range(8)):
        batch.file.write_at(batch.position + at, bytes([whole[at] ^ 1 << bit]))
        unseen += [(at, bit, *read) for read in ranges if not _is_told(log, *read)]
        batch.file.write_at(batch.position + at, whole[at : at + 1])
    assert not unseen
