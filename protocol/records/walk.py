"""Walks through the records of a batch: what is there, without an object for each record.

A `Walk` is fed with the uncompressed payload in pieces of any size. Each record must be whole: its fields fill its
length exactly, no number has more than 32 bits (a timestamp: 64), only keys, values and the values of headers are null.
There must be as many records as the header says, with offset deltas from 0 on, and nothing behind them. That is what
all clients can read. Apache Kafka's broker accepts more (tests/protocol/defects.py).

`Walk` is written in C (native/walk.c) and costs some 15 ns per record. Where that was not built, `walk_twin.Walk` does
the same for 2 us. Its docstring tells what to give and what to get.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from protocol.errors import ErrorCode, KafkaError
from protocol.records.batch import HEADER_BYTES, BatchHeader
from protocol.records.compression import decompressed
from protocol.records.native_module import native

if TYPE_CHECKING or native is None:
    from protocol.records.walk_twin import Walk
else:
    Walk = native.Walk

__all__ = ["STEP_BYTES", "Walk", "walk_in_steps"]

STEP_BYTES = 256 * 1024 if native is not None else 8 * 1024
"""How much is walked through without a pause. It takes less than 1 ms, even if all records have the least size."""


def walk_in_steps(walk: Walk, batch: memoryview, header: BatchHeader) -> Iterator[None]:
    """Feeds a walk with the payload of a complete batch, decompressed if necessary. Yields after each step, which takes
    less than a millisecond.

    Raises KafkaError CORRUPT_MESSAGE, and what `decompressed` raises.
    """
    payload = batch[HEADER_BYTES : header.size_bytes]
    for piece in decompressed(header.compression_id, payload):
        for start in range(0, len(piece) or 1, STEP_BYTES):
            try:
                walk.feed(piece[start : start + STEP_BYTES])
            except ValueError as fault:
                raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(fault)) from None
            yield
    try:
        walk.finish()
    except ValueError as fault:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(fault)) from None
