"""Records for topics that are compacted: few keys, so that each is written again and again, values, and deletions."""

from __future__ import annotations

import asyncio
import random

from protocol.records.builder import NewRecord
from tests.simulator.clock import EPOCH_MS

KEYS = 6
#: How many records delete their key.
DELETED_SHARE = 0.3
MOST_RECORDS = 4
MOST_VALUE_BYTES = 80


def keyed_records(rng: random.Random, name: str) -> list[NewRecord]:
    """Of one batch. No two batches of a run have the same content: `name`, which is this batch's own, stands in the
    headers, because a deletion has no value."""
    now_ms = EPOCH_MS + int(asyncio.get_running_loop().time() * 1000)
    records = []
    for _ in range(rng.randint(1, MOST_RECORDS)):
        is_deleted = rng.random() < DELETED_SHARE
        value = None if is_deleted else rng.randbytes(rng.randrange(MOST_VALUE_BYTES))
        records.append(NewRecord(b"k%d" % rng.randrange(KEYS), value, now_ms, [("of", name.encode())]))
    return records
