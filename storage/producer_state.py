"""What a partition remembers of its producers, so that a retry is recognised (KIP-98, KIP-360).

Per producer id these are its epoch, its last five batches and its open transaction. The state follows from the
batches of the log alone. `check` decides about a client's batch, `check_marker` about a transaction marker. `record` is
called for every batch that was appended, on the leader and in a replay alike.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import NamedTuple

from protocol.errors import ErrorCode, KafkaError
from protocol.records.batch import NO_PRODUCER_ID, BatchHeader
from protocol.records.control import Marker, read_marker, remnant_is_commit
from storage.aborted_index import AbortedIndex, AbortedTransaction

#: A producer has at most five requests in flight (max.in.flight.requests.per.connection with idempotence),
#: so a retry is one of the last five batches.
BATCHES_KEPT = 5

_NO_SEQUENCE = -1
#: The heap of open transactions is built anew when it has more entries than these, and twice those that are open.
MAX_ENDED_IN_HEAP = 1000
#: Of a marker that no coordinator has sent.
NO_ATTEMPT = -1


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


class Gap(NamedTuple):
    """Batches before it are missing, the first of which has the sequence `expected`. They may be under way."""

    expected: int
    #: Why it is refused, if they do not come. None: an unknown producer may begin anywhere, its state may have expired.
    error: KafkaError | None


APPEND = Append()


@dataclass(slots=True)
class ProducerEntry:
    """One producer id.

    Invariants: `last_offset` is at or above that of every batch. There are at most BATCHES_KEPT batches, all of
    `epoch`, in log order. There are none if a transaction marker raised the epoch and the producer wrote nothing under
    it yet.
    """

    epoch: int
    coordinator_epoch: int = -1
    #: First offset of the open transaction; -1 where none is open.
    transaction_first_offset: int = -1
    last_timestamp_ms: int = -1
    #: Of its newest batch or marker.
    last_offset: int = -1
    #: The last attempt, of the coordinator of `coordinator_epoch`, to send a marker that was appended here. Neither log
    #: nor snapshot has it.
    marker_attempt: int = field(default=NO_ATTEMPT, compare=False)
    batches: list[BatchInfo] = field(default_factory=list)

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else _NO_SEQUENCE


def next_sequence(sequence: int) -> int:
    """The sequence after this one: 2^31 - 1 is followed by 0."""
    return (sequence + 1) & 0x7FFFFFFF


def is_ahead(sequence: int, other: int) -> bool:
    """Whether it comes after `other`, by less than half of all sequences."""
    return 0 < (sequence - other) & 0x7FFFFFFF < 1 << 30


class ProducerStates:
    """The producers of one partition, as of `end_offset`."""

    def __init__(self) -> None:
        self.entries: dict[int, ProducerEntry] = {}
        #: One past the last offset that was recorded.
        self.end_offset = 0
        #: Producers with an open transaction, and the first offset of each.
        self._open: dict[int, int] = {}
        #: The highest id that was dropped because there were too many. An unknown one up to it may have been dropped.
        self.highest_dropped = -1
        #: (first offset, producer id) of these; entries of transactions that have ended are skipped.
        self._open_heap: list[tuple[int, int]] = []
        #: (offset of the marker, first offset) of transactions whose marker is not known to be committed. A new leader
        #: may not have the marker: until it is committed, the outcome is not known. Invariant: both numbers rise. One
        #: that begins at or above where a later one begins is left out: it says nothing that the later one does not.
        self._ending: deque[tuple[int, int]] = deque()
        self._aborted: list[AbortedTransaction] = []
        #: Of a state that was read from a snapshot: the base offset of the segment that was active then, and the
        #: transactions that were aborted in it until then. None: not known.
        self.aborted_in_segment: tuple[int, AbortedIndex] | None = None

    # -- deciding

    def check(self, header: BatchHeader) -> Append | Duplicate | Gap:
        """Whether a client's batch may be appended.

        Raises KafkaError: INVALID_PRODUCER_EPOCH for an older epoch, OUT_OF_ORDER_SEQUENCE_NUMBER for a batch that
        lies behind and is not one of the last five. UNKNOWN_PRODUCER_ID is raised for an unknown producer that may have
        been dropped before its time and does not begin with 0: its batch may be a retry. Its client begins a new epoch
        then, or gives up. INVALID_TXN_STATE is raised for a batch that is not of the open transaction of its producer.
        The batches of a coordinator have no sequence (clients' must); they are checked for all but that.
        """
        if header.producer_id == NO_PRODUCER_ID:
            return APPEND
        entry = self.entries.get(header.producer_id)
        sequence = header.base_sequence
        if entry is None:
            if sequence <= 0:
                return APPEND
            if header.producer_id <= self.highest_dropped:
                raise KafkaError(ErrorCode.UNKNOWN_PRODUCER_ID, f"producer {header.producer_id} is not known")
            return Gap(0, None)
        if header.producer_epoch < entry.epoch:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {header.producer_id} has epoch {entry.epoch}, the batch {header.producer_epoch}",
            )
        is_open = entry.transaction_first_offset >= 0
        if header.producer_epoch > entry.epoch:
            if is_open:
                raise KafkaError(ErrorCode.INVALID_TXN_STATE, "the transaction of the epoch before is open")
            expected = 0
        else:
            last_sequence = header.last_sequence
            for batch in entry.batches if sequence != _NO_SEQUENCE else ():
                if batch.last_sequence == last_sequence and batch.offset_delta == header.last_offset_delta:
                    return Duplicate(batch.first_offset, batch.last_offset, batch.timestamp_ms)
            expected = next_sequence(entry.last_sequence)
        if is_open and not header.is_transactional:
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, "the batch is not of the producer's transaction")
        if sequence in (expected, _NO_SEQUENCE):
            return APPEND
        error = KafkaError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"producer {header.producer_id} sent sequence {sequence}, expected {expected}",
        )
        if not is_ahead(sequence, expected):
            raise error
        return Gap(expected, error)

    def begins_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether a transactional batch of this producer would begin its transaction here, so that the coordinator has
        to be asked."""
        entry = self.entries.get(producer_id)
        return entry is None or entry.transaction_first_offset < 0 or entry.epoch != producer_epoch

    def last_offset_of(self, producer_id: int) -> int:
        """Of its newest batch or marker. -1: nothing is known of the producer."""
        entry = self.entries.get(producer_id)
        return -1 if entry is None else entry.last_offset

    def coordinator_epoch_of(self, producer_id: int) -> int | None:
        """Of its newest marker; -1: it has none. None: nothing is known of the producer."""
        entry = self.entries.get(producer_id)
        return None if entry is None else entry.coordinator_epoch

    def check_marker(
        self, producer_id: int, producer_epoch: int, coordinator_epoch: int, attempt: int = NO_ATTEMPT
    ) -> None:
        """Raises KafkaError for a marker that may not be appended: TRANSACTION_COORDINATOR_FENCED if it comes from an
        older coordinator than one before, INVALID_PRODUCER_EPOCH if it is of an older epoch of the producer,
        REQUEST_TIMED_OUT if its coordinator has sent it again (a greater `attempt`) and that was appended: the next
        transaction may have begun since, under the same epoch."""
        entry = self.entries.get(producer_id)
        if entry is None:
            return
        if coordinator_epoch < entry.coordinator_epoch:
            raise KafkaError(ErrorCode.TRANSACTION_COORDINATOR_FENCED)
        if producer_epoch < entry.epoch:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH)
        is_same_coordinator = coordinator_epoch == entry.coordinator_epoch
        if is_same_coordinator and attempt != NO_ATTEMPT and attempt < entry.marker_attempt:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "the marker was sent again since")

    def note_marker_attempt(self, producer_id: int, attempt: int) -> None:
        """Of the marker that was recorded last."""
        self.entries[producer_id].marker_attempt = attempt

    # -- following the log

    def record(self, header: BatchHeader, marker: Marker | None = None) -> None:
        """A batch was appended. A control batch comes with its marker, unless compaction has removed that."""
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
        entry.last_offset = self.end_offset - 1
        if header.is_control:
            self._end_transaction(entry, header, marker)
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
            entry.transaction_first_offset = header.base_offset
            self._note_open(producer_id, header.base_offset)

    def _note_open(self, producer_id: int, first_offset: int) -> None:
        self._open[producer_id] = first_offset
        heapq.heappush(self._open_heap, (first_offset, producer_id))
        if len(self._open_heap) > MAX_ENDED_IN_HEAP + 2 * len(self._open):
            self._open_heap = sorted(
                (first_offset, producer_id) for producer_id, first_offset in self._open.items()
            )

    def _end_transaction(self, entry: ProducerEntry, header: BatchHeader, marker: Marker | None) -> None:
        producer_id, offset = header.producer_id, header.base_offset
        is_commit = remnant_is_commit(header)
        if marker is not None:
            if marker.coordinator_epoch != entry.coordinator_epoch:
                entry.marker_attempt = NO_ATTEMPT  # each coordinator counts its own
            is_commit, entry.coordinator_epoch = marker
        entry.transaction_first_offset = -1
        first_offset = self._open.pop(producer_id, None)
        if first_offset is None:
            return
        ending = self._ending
        while ending and ending[-1][1] >= first_offset:
            ending.pop()
        ending.append((offset, first_offset))
        if is_commit is False:
            stable = self.first_open_offset
            last_stable_offset = offset + 1 if stable is None else stable
            self._aborted.append(AbortedTransaction(producer_id, first_offset, offset, last_stable_offset))

    def record_stored(self, batch: memoryview, header: BatchHeader) -> None:
        """`record` for a batch whose bytes are at hand (a replay, a follower)."""
        self.record(header, read_marker(batch) if header.is_control else None)

    def drop_least_recent(self, count: int, below_offset: int) -> int:
        """Forget at most `count` producers, those first that have written nothing for longest. Returns how many.

        Only those whose batches and markers are all below `below_offset`, which is committed: a client that has no
        answer yet is going to send its batch again. And none with an open transaction.
        """
        ages = sorted(
            (entry.last_offset, producer_id)
            for producer_id, entry in self.entries.items()
            if producer_id not in self._open
        )
        dropped = [producer_id for last_offset, producer_id in ages[:count] if last_offset < below_offset]
        for producer_id in dropped:
            del self.entries[producer_id]
        self.highest_dropped = max([self.highest_dropped, *dropped])
        return len(dropped)

    def adopt(self, producer_id: int, entry: ProducerEntry) -> None:
        """Add an entry of a snapshot."""
        self.entries[producer_id] = entry
        if entry.transaction_first_offset >= 0:
            self._note_open(producer_id, entry.transaction_first_offset)

    def keep_what_no_log_has(self, before: ProducerStates) -> None:
        """This state was read from the log that `before` is of."""
        self.highest_dropped = before.highest_dropped
        for producer_id, entry in self.entries.items():
            known = before.entries.get(producer_id)
            if known is not None and known.coordinator_epoch == entry.coordinator_epoch:
                entry.marker_attempt = known.marker_attempt

    def open_before(self, offset: int) -> set[int]:
        """Producers whose open transaction begins below this offset."""
        return {producer_id for producer_id, first_offset in self._open.items() if first_offset < offset}

    def close_all_but(self, producer_ids: AbstractSet[int]) -> None:
        """The open transactions of all other producers have ended."""
        for producer_id in self._open.keys() - producer_ids:
            del self._open[producer_id]
            self.entries[producer_id].transaction_first_offset = -1

    def take_aborted(self) -> list[AbortedTransaction]:
        """The transactions whose ABORT marker was recorded since the last call."""
        aborted, self._aborted = self._aborted, []
        return aborted

    # -- what readers of committed data may see

    @property
    def first_open_offset(self) -> int | None:
        """First offset of the earliest open transaction."""
        heap = self._open_heap
        while heap and self._open.get(heap[0][1]) != heap[0][0]:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def forget_ended(self, high_watermark: int) -> None:
        """Whose marker is committed needs nothing any more. Also where nobody asks for the last stable offset: it would
        take 100 bytes for each transaction."""
        ending = self._ending
        while ending and ending[0][0] < high_watermark:
            ending.popleft()

    def last_stable_offset(self, high_watermark: int) -> int:
        """Every transaction below has ended, and that is committed (KIP-98). At or below the high watermark, which only
        rises."""
        self.forget_ended(high_watermark)
        ending = self._ending
        stable = min(high_watermark, ending[0][1]) if ending else high_watermark
        first_open = self.first_open_offset
        return stable if first_open is None else min(stable, first_open)
