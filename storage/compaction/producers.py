"""The batches from which a replay learns what active producers wrote last."""

from __future__ import annotations

from storage.producer_state import ProducerStates


def last_offsets(states: ProducerStates, committed_end_offset: int) -> frozenset[int]:
    """The last offsets of the committed batches that are remembered of each producer that has not expired.

    Without them, a replica that copies the compacted log would take a retry for a new batch, or refuse it: then a
    client begins a new epoch and writes the records twice. If a producer has written
    nothing under its epoch yet, that is the marker which raised the epoch: without it, a batch of the epoch before
    would be accepted again. An uncommitted batch does not count, because it may be cut off.
    """
    offsets: set[int] = set()
    for entry in states.entries.values():
        if entry.batches:
            offsets.update(
                batch.last_offset for batch in entry.batches if batch.last_offset < committed_end_offset
            )
        elif entry.last_offset < committed_end_offset:
            offsets.add(entry.last_offset)
    return frozenset(offsets)
