"""All replicas of a partition know the same of its transactions, once they are equal: the producers, which transactions
are open and which are aborted, and what is stable. So whoever leads next answers the same.

Where compaction has been at work, each replica has kept as much as it needed: of each producer the batches that a retry
may come of, and of the aborted transactions those whose data it still has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from broker.replication.replica import Replica
from storage.aborted_index import AbortedTransaction
from storage.aborted_loading import load_aborted
from storage.aborted_transactions import AbortedIndexMissingError
from storage.producer_state import ProducerStates


def aborted_of(replica: Replica) -> list[AbortedTransaction]:
    """All that readers of committed data are told, from the log start on. As the replica's node: it may read files,
    and write them anew."""
    log = replica.log
    while True:
        try:
            return list(log.aborted_between(log.start_offset, replica.last_stable_offset))
        except AbortedIndexMissingError as missing:
            for _ in load_aborted(log, missing.base_offset):
                pass


def _producers_known(
    replicas: Mapping[int, Replica], of: Callable[[ProducerStates], dict[int, object]]
) -> dict[int, dict[int, object]]:
    """By node: what is known of each producer. Where there are too many, each replica drops those that it has not heard
    of for longest: those that some replica has dropped do not count, but for the ones with an open transaction."""
    known = {node_id: of(replica.producers) for node_id, replica in replicas.items()}
    if any(replica.producers.highest_dropped >= 0 for replica in replicas.values()):
        everywhere = set.intersection(*(set(producers) for producers in known.values()))
        for node_id, replica in replicas.items():
            entries = replica.producers.entries
            known[node_id] = {
                producer_id: what
                for producer_id, what in known[node_id].items()
                if producer_id in everywhere or entries[producer_id].transaction_first_offset >= 0
            }
    return known


def _producers_of(states: ProducerStates) -> dict[int, object]:
    return {
        producer_id: (
            entry.epoch,
            entry.coordinator_epoch,
            entry.transaction_first_offset,
            entry.last_offset,
            tuple(entry.batches),
        )
        for producer_id, entry in sorted(states.entries.items())
    }


def _kept_of(states: ProducerStates) -> dict[int, object]:
    """What a replay of a compacted log has to find, too. Not the time of a batch: it is that of the records left. But
    every batch that is remembered: a retry of one that is not is refused as out of order, and its client sends it under
    another epoch, so that it is there twice (storage/README.md, "Producer snapshots carry five batches")."""
    return {
        producer_id: (
            entry.epoch,
            entry.transaction_first_offset,
            [(batch.last_sequence, batch.last_offset, batch.offset_delta) for batch in entry.batches],
        )
        for producer_id, entry in sorted(states.entries.items())
    }


def check_equal(
    replicas: Mapping[int, Replica], aborted: Mapping[int, list[AbortedTransaction]], *, is_compacted: bool
) -> None:
    """`replicas` of one partition, by node, which hold the same log; `aborted`: of each. Only a leader knows the
    committed log start, so last stable offsets are compared without it."""
    producers = _producers_known(replicas, _kept_of if is_compacted else _producers_of)
    seen = {
        node_id: (
            replica.producers.last_stable_offset(replica.high_watermark),
            [] if is_compacted else aborted[node_id],
            producers[node_id],
        )
        for node_id, replica in replicas.items()
    }
    values = list(seen.values())
    if all(value == values[0] for value in values):
        return
    key = next(iter(replicas.values())).key
    for number, what in enumerate(("last stable offsets", "aborted transactions", "producers")):
        found = {node_id: value[number] for node_id, value in seen.items()}
        first = next(iter(found.values()))
        assert all(value == first for value in found.values()), f"{what} of {key} differ: {found}"
