"""What a partition remembers of its producers, so that a retry is recognised (KIP-98, KIP-360).

Per producer id these are its epoch, its last five batches and its open transaction. The state follows from the
batches of the log alone. `check` decides about a client's batch. `record` is called for every batch that was
appended, on the leader and in a replay alike.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import NamedTuple

from protocol.errors import ErrorCode, KafkaError
from protocol.records.batch import NO_PRODUCER_ID, BatchHeader
from protocol.records.record import iter_records

#: A producer has at most five requests in flight (max.in.flight.requests.per.connection with idempotence),
#: so a retry is one of the last five batches.
BATCHES_KEPT = 5

_NO_SEQUENCE = -1
_CONTROL_VALUE = struct.Struct(">hi")


class BatchInfo(NamedTuple):
    """What a retry of a batch has to match."""

    last_sequence: int
    last_offset: int
    #: Last offset minus first offset; the same for sequences.
    offset_delta: int
    timestamp_ms: int

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


class Append(NamedTuple):
    """The batch is new: append it."""


class Duplicate(NamedTuple):
    """The batch is in the log already. Its answer is that place, once it is committed."""

    base_offset: int
    last_offset: int
    timestamp_ms: int


APPEND = Append()


@dataclass(slots=True)
class ProducerEntry:
    """One producer id.

    Invariants: there are at most BATCHES_KEPT batches, all of `epoch`, in log order. There are none if a transaction
    marker raised the epoch and the producer wrote nothing under it yet.
    """

    epoch: int
    coordinator_epoch: int = -1
    #: First offset of the open transaction; -1 where none is open.
    transaction_first_offset: int = -1
    last_timestamp_ms: int = -1
    batches: list[BatchInfo] = field(default_factory=list)

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else _NO_SEQUENCE


def next_sequence(sequence: int) -> int:
    """The sequence after this one: 2^31 - 1 is followed by 0."""
    return (sequence + 1) & 0x7FFFFFFF


class ProducerStates:
    """The producers of one partition, as of `end_offset`."""

    def __init__(self) -> None:
        self.entries: dict[int, ProducerEntry] = {}
        #: One past the last offset that was recorded.
        self.end_offset = 0
        #: Producers with an open transaction, and the first offset of each.
        self._open: dict[int, int] = {}
        #: Producers were dropped because there were too many. One that is unknown may be one of them.
        self.has_dropped = False

    # -- deciding

    def check(self, header: BatchHeader) -> Append | Duplicate:
        """Whether a client's batch may be appended.

        Raises KafkaError: INVALID_PRODUCER_EPOCH for an older epoch, OUT_OF_ORDER_SEQUENCE_NUMBER for a batch that is
        neither the next one nor one of the last five. An unknown producer id may begin with any sequence: its state may
        have expired. But if producers were dropped before their time, UNKNOWN_PRODUCER_ID is raised for one that does
        not begin with 0: its batch may be a retry. Its client begins a new epoch then, or gives up.
        """
        if header.producer_id == NO_PRODUCER_ID:
            return APPEND
        entry = self.entries.get(header.producer_id)
        sequence = header.base_sequence
        if entry is None:
            if sequence > 0 and self.has_dropped:
                raise KafkaError(ErrorCode.UNKNOWN_PRODUCER_ID, f"producer {header.producer_id} is not known")
            return APPEND
        if header.producer_epoch < entry.epoch:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {header.producer_id} has epoch {entry.epoch}, the batch {header.producer_epoch}",
            )
        if header.producer_epoch > entry.epoch:
            expected = 0
        else:
            last_sequence = header.last_sequence
            for batch in entry.batches:
                if batch.last_sequence == last_sequence and batch.offset_delta == header.last_offset_delta:
                    return Duplicate(batch.first_offset, batch.last_offset, batch.timestamp_ms)
            expected = next_sequence(entry.last_sequence)
        if sequence != expected:
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {header.producer_id} sent sequence {sequence}, expected {expected}",
            )
        return APPEND

    # -- following the log

    def record(self, header: BatchHeader, control_value: memoryview | None = None) -> None:
        """A batch was appended. A control batch comes with the value of its record, unless compaction has removed
        that."""
        self.end_offset = header.base_offset + header.last_offset_delta + 1
        producer_id = header.producer_id
        if producer_id == NO_PRODUCER_ID:
            return
        entry = self.entries.get(producer_id)
        if entry is None:
            entry = self.entries[producer_id] = ProducerEntry(header.producer_epoch)
        elif header.producer_epoch != entry.epoch:
            entry.epoch = header.producer_epoch
            entry.batches.clear()
        entry.last_timestamp_ms = header.max_timestamp
        if header.is_control:
            self._end_transaction(producer_id, entry, control_value)
            return
        if header.base_sequence != _NO_SEQUENCE:
            batches = entry.batches
            batches.append(
                BatchInfo(
                    header.last_sequence, self.end_offset - 1, header.last_offset_delta, header.max_timestamp
                )
            )
            if len(batches) > BATCHES_KEPT:
                del batches[0]
        if header.is_transactional and entry.transaction_first_offset < 0:
            entry.transaction_first_offset = self._open[producer_id] = header.base_offset

    def _end_transaction(self, producer_id: int, entry: ProducerEntry, value: memoryview | None) -> None:
        if value is not None:
            _, entry.coordinator_epoch = _CONTROL_VALUE.unpack_from(value)
        entry.transaction_first_offset = -1
        self._open.pop(producer_id, None)

    def record_stored(self, batch: memoryview, header: BatchHeader) -> None:
        """`record` for a batch whose bytes are at hand (a replay)."""
        value = None
        if header.is_control:
            marker = next(iter_records(batch), None)
            value = marker.value if marker is not None else None
        self.record(header, value)

    def drop_least_recent(self, count: int, below_offset: int) -> int:
        """Forget at most `count` producers, those first that have written nothing for longest. Returns how many.

        Only those whose batches are all below `below_offset`, which is committed: a client that has no answer yet is
        going to send its batch again. And none with an open transaction.
        """
        ages = sorted(
            (entry.batches[-1].last_offset if entry.batches else -1, producer_id)
            for producer_id, entry in self.entries.items()
            if producer_id not in self._open
        )
        dropped = [producer_id for last_offset, producer_id in ages[:count] if last_offset < below_offset]
        for producer_id in dropped:
            del self.entries[producer_id]
        self.has_dropped = self.has_dropped or bool(dropped)
        return len(dropped)

    def adopt(self, producer_id: int, entry: ProducerEntry) -> None:
        """Add an entry of a snapshot."""
        self.entries[producer_id] = entry
        if entry.transaction_first_offset >= 0:
            self._open[producer_id] = entry.transaction_first_offset

    @property
    def first_open_offset(self) -> int | None:
        """First offset of the earliest open transaction: readers of committed data stop there (KIP-98)."""
        return min(self._open.values()) if self._open else None
