"""The batches from which a replay learns what active producers wrote last."""

from __future__ import annotations

from storage.producer_state import ProducerStates


def last_offsets(states: ProducerStates) -> frozenset[int]:
    """The last offsets of the batches that are remembered of each producer.

    Without them, a replica that copies the compacted log would take a retry for a new batch, or refuse it: then a
    client begins a new epoch and writes the records twice. If a producer has written nothing under its epoch yet, that
    is the marker which raised the epoch: without it, a batch of the epoch before would be accepted again.

    `states`: as of an offset that is committed, at or above the end of the pass, and without expired producers. What is
    written above that offset replaces batches, and it may be cut off: then these are remembered again. Of batches below
    the end of the pass, a later state remembers no others.
    """
    offsets: set[int] = set()
    for entry in states.entries.values():
        if entry.batches:
            offsets.update(batch.last_offset for batch in entry.batches)
        else:
            offsets.add(entry.last_offset)
    return frozenset(offsets)
