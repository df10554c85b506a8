"""What is known of one transactional id, and how it changes. Values only: `states.py` has the table.

Each method that decides returns the next value, the same one if nothing changes, or raises KafkaError.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

from broker.coordinator.memory import text_size
from broker.transactions.states import TransactionState
from protocol.errors import ErrorCode, KafkaError

MAX_EPOCH = 32767
#: From this epoch on a producer gets another producer id instead of the next epoch. One epoch is left, so that it can
#: be fenced.
EXHAUSTED_EPOCH = MAX_EPOCH - 1
NO_PRODUCER_ID = -1
NO_EPOCH = -1
#: `transaction.version`, from which on each end of a transaction raises the epoch (KIP-890).
EPOCH_BUMP_VERSION = 2

#: Partitions of one transaction. Each change of a transaction writes down all of them.
MAX_PARTITIONS = 10_000

#: Measured: 500 to 700 bytes for an id, 110 to 150 for a partition of its transaction.
ID_BYTES, PARTITION_BYTES = 800, 160

_AFTER_MARKERS = {
    TransactionState.PREPARE_COMMIT: TransactionState.COMPLETE_COMMIT,
    TransactionState.PREPARE_ABORT: TransactionState.COMPLETE_ABORT,
}


class TopicPartition(NamedTuple):
    topic: str
    partition: int


class ProducerIdAndEpoch(NamedTuple):
    producer_id: int
    epoch: int

    @property
    def is_exhausted(self) -> bool:
        return self.epoch >= EXHAUSTED_EPOCH


class TransactionInDoubtError(KafkaError):
    """CONCURRENT_TRANSACTIONS: the end of the transaction before is decided, and some marker is missing."""

    def __init__(self) -> None:
        super().__init__(ErrorCode.CONCURRENT_TRANSACTIONS)


@dataclass(frozen=True, slots=True)
class TransactionMetadata:
    """Invariants: partitions only in ONGOING and the PREPARE states; started_ms is -1 exactly in EMPTY;
    next_producer_id only in the PREPARE states."""

    transactional_id: str
    producer_id: int
    epoch: int
    timeout_ms: int
    state: TransactionState
    updated_ms: int
    partitions: frozenset[TopicPartition] = frozenset()
    started_ms: int = -1
    last_epoch: int = NO_EPOCH
    """The epoch before the last InitProducerId, if the producer named it: a retry names it again. -1 otherwise."""
    previous_producer_id: int = NO_PRODUCER_ID
    """The producer id before this one, whose epochs were exhausted."""
    next_producer_id: int = NO_PRODUCER_ID
    """The producer id that takes over when the markers are committed."""
    client_version: int = 0
    """`transaction.version` of the client that wrote the transaction."""

    @property
    def producer(self) -> ProducerIdAndEpoch:
        return ProducerIdAndEpoch(self.producer_id, self.epoch)

    @property
    def size_bytes(self) -> int:
        """What it takes in memory (broker.coordinator.memory)."""
        return ID_BYTES + 2 * text_size(self.transactional_id) + PARTITION_BYTES * len(self.partitions)

    @property
    def is_commit(self) -> bool:
        """Of a transaction whose end is decided."""
        assert self.state.is_prepared
        return self.state is TransactionState.PREPARE_COMMIT

    # -- InitProducerId ----------------------------------------------------------------------------------

    def init_producer(
        self, expected: ProducerIdAndEpoch | None, timeout_ms: int, new_producer_id: int, now_ms: int
    ) -> TransactionMetadata:
        """A producer takes the id over. `expected`: the producer id and epoch that it had, None for a new producer.
        `new_producer_id` is used if the epochs of the present one are exhausted.

        An open transaction is aborted first: the next value is PREPARE_ABORT then, and the producer asks again when
        that is complete. Raises PRODUCER_FENCED if another producer has taken the id over since."""
        if expected is not None:
            self._check_owner(expected)
        if self.state.is_prepared:
            raise TransactionInDoubtError
        if self.state is TransactionState.ONGOING:
            return self.fence(now_ms)
        if expected is not None and expected != self.producer:
            return self  # a retry: its answer was lost
        last_epoch = NO_EPOCH if expected is None else self.epoch
        if not self.producer.is_exhausted:
            producer_id, epoch, previous = self.producer_id, self.epoch + 1, self.previous_producer_id
        else:
            producer_id, epoch, previous = new_producer_id, 0, self.producer_id
        return TransactionMetadata(
            self.transactional_id,
            producer_id,
            epoch,
            timeout_ms,
            TransactionState.EMPTY,
            now_ms,
            last_epoch=last_epoch,
            previous_producer_id=previous,
        )

    def _check_owner(self, expected: ProducerIdAndEpoch) -> None:
        """Raises PRODUCER_FENCED unless the producer has the id now, or had it before a bump of its own whose answer it
        may not have got."""
        if expected == self.producer:
            return
        is_same_id = expected.producer_id == self.producer_id
        is_rotated = expected.producer_id == self.previous_producer_id and expected.is_exhausted
        if not (is_same_id or is_rotated) or expected.epoch != self.last_epoch:
            raise KafkaError(ErrorCode.PRODUCER_FENCED)

    def fence(self, now_ms: int) -> TransactionMetadata:
        """The open transaction is aborted without its producer, who is fenced."""
        assert self.state is TransactionState.ONGOING
        return replace(
            self,
            state=TransactionState.PREPARE_ABORT,
            # One epoch is left to fence with, since `_check_producer` lets nobody begin in the last one. A log that was
            # written before it did may hold such a transaction.
            epoch=min(self.epoch + 1, MAX_EPOCH),
            last_epoch=NO_EPOCH,
            updated_ms=now_ms,
        )

    def time_out(self, now_ms: int) -> TransactionMetadata:
        """The open transaction has lasted for too long, and is aborted. What its producer sent before is fenced.

        From version 2 on the producer may abort it, too, and goes on with the next epoch, as in Apache Kafka: nobody
        else has the id."""
        aborted = self.fence(now_ms)
        if self.client_version < EPOCH_BUMP_VERSION or self.producer.is_exhausted:
            return aborted
        return replace(aborted, last_epoch=self.epoch)

    # -- partitions --------------------------------------------------------------------------------------

    def add_partitions(
        self,
        producer: ProducerIdAndEpoch,
        partitions: Iterable[TopicPartition],
        client_version: int,
        now_ms: int,
    ) -> TransactionMetadata:
        """Partitions that the producer is going to write to; the first begins the transaction. Raises POLICY_VIOLATION
        for more than MAX_PARTITIONS."""
        self._check_producer(producer)
        if self.state.is_prepared:
            raise TransactionInDoubtError
        is_open = self.state is TransactionState.ONGOING
        added = self.partitions.union(partitions)
        if is_open and added == self.partitions:
            return self
        if len(added) > MAX_PARTITIONS:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION, f"a transaction has at most {MAX_PARTITIONS} partitions"
            )
        return replace(
            self,
            state=TransactionState.ONGOING,
            partitions=added,
            started_ms=self.started_ms if is_open else now_ms,
            updated_ms=now_ms,
            client_version=client_version,
        )

    def verify_partition(self, producer: ProducerIdAndEpoch, partition: TopicPartition) -> None:
        """Raises KafkaError unless the partition is in the open transaction of this producer (KIP-890)."""
        self._check_producer(producer)
        if self.state.is_prepared:
            raise TransactionInDoubtError
        if partition not in self.partitions:
            raise KafkaError(ErrorCode.TRANSACTION_ABORTABLE)

    def _check_producer(self, producer: ProducerIdAndEpoch) -> None:
        if producer.producer_id != self.producer_id:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        # No producer is ever told the last epoch: it fences.
        if producer.epoch != self.epoch or producer.epoch == MAX_EPOCH:
            raise KafkaError(ErrorCode.PRODUCER_FENCED)

    # -- EndTxn ------------------------------------------------------------------------------------------

    def end(
        self,
        producer: ProducerIdAndEpoch,
        *,
        is_commit: bool,
        client_version: int,
        new_producer_id: int,
        now_ms: int,
    ) -> TransactionMetadata:
        """The producer ends its transaction. The next value is a PREPARE state; COMPLETE_ABORT where nothing was open;
        or the same value, if this is a retry. `new_producer_id` is used if the epochs are exhausted."""
        if client_version >= EPOCH_BUMP_VERSION:
            return self._end_with_bump(producer, is_commit, client_version, new_producer_id, now_ms)
        self._check_producer(producer)
        if self.state is TransactionState.ONGOING:
            return self._prepare(is_commit, now_ms)
        self._check_repeated_end(is_commit)
        return self

    def _check_repeated_end(self, is_commit: bool) -> None:
        """Raises KafkaError unless the transaction was ended like this, and completely."""
        prepared = TransactionState.PREPARE_COMMIT if is_commit else TransactionState.PREPARE_ABORT
        if self.state is prepared:
            raise TransactionInDoubtError
        if self.state is not _AFTER_MARKERS[prepared]:
            raise KafkaError(ErrorCode.INVALID_TXN_STATE)

    def _end_with_bump(
        self,
        producer: ProducerIdAndEpoch,
        is_commit: bool,
        client_version: int,
        new_producer_id: int,
        now_ms: int,
    ) -> TransactionMetadata:
        if self._is_before_bump(producer) and self.state not in (
            TransactionState.EMPTY,
            TransactionState.ONGOING,
        ):
            self._check_repeated_end(is_commit)
            return self
        self._check_producer(producer)
        if self.state.is_prepared:
            raise KafkaError(ErrorCode.PRODUCER_FENCED)
        next_producer_id = new_producer_id if self.producer.is_exhausted else NO_PRODUCER_ID
        assert (next_producer_id != NO_PRODUCER_ID) == self.producer.is_exhausted
        bumped = replace(
            self,
            epoch=self.epoch + 1,
            last_epoch=self.epoch,
            next_producer_id=next_producer_id,
            client_version=client_version,
        )
        if self.state is TransactionState.ONGOING:
            return bumped._prepare(is_commit, now_ms)
        if is_commit:
            raise KafkaError(ErrorCode.INVALID_TXN_STATE)
        # Nothing is open, so there are no markers. The epoch rises all the same: what the producer sent before may
        # still be on its way.
        return bumped._prepare(is_commit, now_ms).complete(now_ms)

    def _is_before_bump(self, producer: ProducerIdAndEpoch) -> bool:
        """Whether this producer's own end of a transaction has raised its epoch, which it may not know. (Where it was
        fenced, there is no last epoch.)"""
        if producer.producer_id == self.producer_id:
            return producer.epoch == self.last_epoch == self.epoch - 1
        return producer == (self.previous_producer_id, EXHAUSTED_EPOCH) and self.epoch == 0

    def _prepare(self, is_commit: bool, now_ms: int) -> TransactionMetadata:
        state = TransactionState.PREPARE_COMMIT if is_commit else TransactionState.PREPARE_ABORT
        started_ms = self.started_ms if self.started_ms >= 0 else now_ms
        return replace(self, state=state, started_ms=started_ms, updated_ms=now_ms)

    def complete(self, now_ms: int) -> TransactionMetadata:
        """All markers are committed."""
        state = _AFTER_MARKERS[self.state]
        done = replace(self, state=state, partitions=frozenset(), updated_ms=now_ms)
        if self.next_producer_id == NO_PRODUCER_ID:
            return done
        return replace(
            done,
            producer_id=self.next_producer_id,
            epoch=0,
            previous_producer_id=self.producer_id,
            next_producer_id=NO_PRODUCER_ID,
        )

    # -- expiry ------------------------------------------------------------------------------------------

    def is_expired(self, expiration_ms: int, now_ms: int) -> bool:
        """The id was not used for so long, and no transaction is open."""
        is_open = self.state is TransactionState.ONGOING or self.state.is_prepared
        return not is_open and now_ms - self.updated_ms >= expiration_ms


def new_metadata(
    transactional_id: str, producer_id: int, timeout_ms: int, now_ms: int
) -> TransactionMetadata:
    """The first producer of a transactional id."""
    return TransactionMetadata(transactional_id, producer_id, 0, timeout_ms, TransactionState.EMPTY, now_ms)
