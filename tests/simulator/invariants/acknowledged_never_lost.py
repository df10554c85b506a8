"""A write acknowledged with acks=all is never lost (replication.md, the promise), and Raft's leader completeness: a
leader that serves holds everything that was ever acknowledged."""

from __future__ import annotations

from typing import NamedTuple

from broker.replication.replica import Replica
from storage.log_reader import StoredBatch
from storage.log_types import GroupKey
from tests.simulator.invariants.one_value_per_offset import OneValuePerOffset, value_of


class Acknowledged(NamedTuple):
    producer_id: int
    base_sequence: int
    last_offset: int


class AcknowledgedNeverLost:
    def __init__(self, values: OneValuePerOffset) -> None:
        self._values = values
        #: By group, base offset -> what a client was told.
        self.batches: dict[GroupKey, dict[int, Acknowledged]] = {}
        #: By group, one past the last offset that any client was told of.
        self.ends: dict[GroupKey, int] = {}

    @property
    def count(self) -> int:
        return sum(len(batches) for batches in self.batches.values())

    def acknowledged(self, key: GroupKey, base_offset: int, batch: Acknowledged) -> None:
        """A client got the answer."""
        known = self.batches.setdefault(key, {}).setdefault(base_offset, batch)
        assert known == batch, f"offset {base_offset} of {key} was acknowledged for {known} and {batch}"
        value = self._values.values.get((key, base_offset))
        assert value is not None, f"{batch} at {base_offset} of {key} is acknowledged and not committed"
        written = Acknowledged(value.producer_id, value.base_sequence, value.last_offset)
        assert written == batch, f"offset {base_offset} of {key} holds {written}, acknowledged was {batch}"
        self.ends[key] = max(self.ends.get(key, 0), batch.last_offset + 1)

    def told(self, partition: int, base_offset: int, digest: bytes) -> GroupKey:
        """A client that sent a batch of this content to a topic's name got the answer: which of the topics that had
        this name in turn took it, only the batch tells. Returns that one's partition."""
        places = self._values.places.get(digest, [])
        keys = [key for key, offset in places if offset == base_offset and key.partition == partition]
        assert keys, f"acknowledged at {base_offset} of partition {partition}, committed at {places}"
        value = self._values.values[keys[-1], base_offset]
        batch = Acknowledged(value.producer_id, value.base_sequence, value.last_offset)
        self.acknowledged(keys[-1], base_offset, batch)
        return keys[-1]

    def told_by_a_later_one(self, digest: bytes) -> None:
        """A later batch of its producer was acknowledged: for librdkafka, this one is with it."""
        assert self._values.places.get(digest), "a batch is committed, and one before it is not"

    def check_leader(self, replica: Replica) -> None:
        """It serves from now on: it must have every batch that any client was told of, those of later terms aside. One
        that serves again, because a transfer was given up, may have a successor that it has not heard of."""
        self._check(replica, replica.log.end_offset, replica.group.term)

    def check_replica(self, replica: Replica) -> None:
        """After everything healed: each replica holds everything, committed."""
        self._check(replica, replica.high_watermark, replica.group.term)

    def _check(self, replica: Replica, below: int, term: int) -> None:
        start, key = replica.log.start_offset, replica.key
        held: dict[int, StoredBatch] = {}
        for stored in replica.log.batches(start, below):
            for base_offset in self._bases(key, stored):
                held[base_offset] = stored
        for offset, batch in self.batches.get(key, {}).items():
            promised = self._values.values.get((key, offset))
            if offset < start or (promised is not None and promised.leader_epoch > term):
                continue
            found = held.get(offset)
            value = None if found is None else value_of(found.header, found.view())
            if value is not None and value != promised and self._values.is_compacted(key):
                assert found is not None
                self._values.check(key, found.header, found.view())
                continue
            assert value is not None and value == promised, (
                f"{batch} was acknowledged at {offset} of {replica.topic}-{replica.partition}; "
                f"{replica.group.self_id} of term {replica.group.term} has {value}"
            )

    def _bases(self, key: GroupKey, stored: StoredBatch) -> list[int]:
        """Of the batches for which one stands: a filler for those that compaction has removed."""
        header = stored.header
        if not header.is_filler or not self._values.is_compacted(key):
            return [header.base_offset]
        return [original.base_offset for original in self._values.originals(key, header)]
