"""The batches from which a replay learns what active producers wrote last."""

from __future__ import annotations

from collections.abc import Container

from storage.producer_state import ProducerStates


def last_offsets(settled: ProducerStates, active: Container[int]) -> frozenset[int]:
    """The last offsets of the batches that are remembered of each producer in `active`: those that have not expired.

    `settled` is a committed state at or above the end of the pass. Then the batches of every later state below that end
    are among its own. The newest state will not do: uncommitted batches have pushed committed ones out of it, and may
    be cut off.

    Without these batches, a replica that copies the compacted log would take a retry for a new batch, or refuse it:
    then a client begins a new epoch and writes the records twice. If a producer has written nothing under its epoch
    yet, that is the marker which raised the epoch: without it, a batch of the epoch before would be accepted again.
    """
    offsets: set[int] = set()
    for producer_id, entry in settled.entries.items():
        if producer_id not in active:
            continue
        if entry.batches:
            offsets.update(batch.last_offset for batch in entry.batches)
        else:
            offsets.add(entry.last_offset)
    return frozenset(offsets)
