"""The state of one partition of `__transaction_state`: transactional ids, and who waits for what.

Durable state changes in `replay` alone. A decision gives the next value of one id as a record. When the end of a
transaction is decided and committed, the shard orders its markers (`on_prepared`); when all of them are committed, the
host calls `complete`.

Requests that come while markers are missing are parked: most markers are committed within milliseconds, and a client
that is told CONCURRENT_TRANSACTIONS sleeps for 20 to 100 ms. After PARKED_S they are answered all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from broker.coordinator.deadlines import Deadlines
from broker.coordinator.memory import CoordinatorMemory
from broker.coordinator.outcome import Outcome
from broker.coordinator.ticket import Ticket
from broker.transactions.metadata import (
    EPOCH_BUMP_VERSION,
    ProducerIdAndEpoch,
    TopicPartition,
    TransactionInDoubtError,
    TransactionMetadata,
    new_metadata,
)
from broker.transactions.records import TransactionRecord
from broker.transactions.requests import (
    AddPartitions,
    EndTransaction,
    InitProducer,
    TransactionAnswer,
    TransactionRequest,
)
from broker.transactions.states import TransactionState
from protocol.errors import ErrorCode, KafkaError

#: How long a request waits for missing markers. A partition without a leader must not make clients time out.
PARKED_S = 1.0
#: A completed transaction is written down after so long, if its producer does nothing else.
WRITTEN_AFTER_S = 0.2
#: Of so many open transactions of a node it is known who has begun them. The oldest are forgotten first.
MAX_BEGUN_BY = 20_000
#: Requests that wait for the markers of one transactional id. A client has one at a time.
MAX_PARKED = 16


@dataclass(frozen=True, slots=True)
class Completion:
    """What follows when all markers of a transaction are committed."""

    answer: TransactionAnswer
    """For those who ended the transaction. It need not wait for a record that says so: whoever takes over writes the
    markers again."""
    ended_by: list[Ticket[TransactionAnswer]]
    waiting: list[tuple[Ticket[TransactionAnswer], TransactionRequest]]
    """The requests that have to be decided again."""


class BegunBy(NamedTuple):
    """Which transaction of an id was begun, and by which connection."""

    started_ms: int
    connection: int


@dataclass(frozen=True, slots=True)
class _Parked:
    ticket: Ticket[TransactionAnswer]
    request: TransactionRequest
    deadline: float
    is_decided: bool
    """The request has decided the end that others wait for: it is answered, not decided again."""


class TransactionShard:
    """See the module."""

    def __init__(
        self,
        on_prepared: Callable[[TransactionShard, TransactionMetadata], None],
        memory: CoordinatorMemory,
        begun_by: dict[str, BegunBy] | None = None,
    ) -> None:
        """`on_prepared`: called when the end of a transaction is decided and committed: write its markers. `begun_by`:
        what shards before this one have seen on this node; the shard goes on with it."""
        self._on_prepared = on_prepared
        self._memory = memory
        #: Of all ids (broker.coordinator.memory).
        self.size_bytes = 0
        self._ids: dict[str, TransactionMetadata] = {}
        #: Loop time at which the open transaction of an id is aborted. Invariant: exactly the ids that are ONGOING.
        self._times_out_at: dict[str, float] = {}
        #: The next values of ids whose markers are all committed, and the loop time at which each is written. A
        #: producer that goes on begins its next transaction before, and that record takes its place: a record less for
        #: each transaction. Whoever loads the log finds the transaction prepared, and comes to the same value.
        self._completed: dict[str, tuple[TransactionMetadata, float]] = {}
        #: Of open transactions: the connection whose request has begun it, as far as this node has seen it. Without a
        #: rise of the epoch nothing else tells a late EndTxn of the transaction before.
        self._begun_by: dict[str, BegunBy] = {} if begun_by is None else begun_by
        #: Invariant: no empty lists.
        self._parked: dict[str, list[_Parked]] = {}
        self._deadlines: Deadlines[str] = Deadlines()

    # -- state -------------------------------------------------------------------------------------------

    def replay(self, record: TransactionRecord) -> None:
        before = self._ids.pop(record.transactional_id, None)
        if before is not None:
            self.size_bytes -= before.size_bytes
            self._completed.pop(record.transactional_id, None)
        if record.metadata is not None:
            self._ids[record.transactional_id] = record.metadata
            self.size_bytes += record.metadata.size_bytes

    def replay_pending(self, producer_id: int, record: TransactionRecord) -> None:
        raise AssertionError("transactional ids are not written in transactions")

    def pending_keys(self, producer_id: int) -> Mapping[str, int]:
        return {}

    def end_transaction(self, producer_id: int, *, is_commit: bool) -> Iterator[None]:
        return iter(())

    def loaded(self, now: float, now_ms: int) -> Iterator[None]:
        """All of the log is replayed, and committed. The shard takes requests when these steps are done. The wall clock
        may have jumped: no transaction gets more than its timeout from now on."""
        for transactional_id, metadata in list(self._ids.items()):
            if metadata.state is TransactionState.ONGOING:
                left_ms = metadata.timeout_ms - (now_ms - metadata.started_ms)
                left_s = min(max(left_ms, 0), metadata.timeout_ms) / 1000
                self._times_out_at[transactional_id] = now + left_s
                self.update_deadline(transactional_id)
            elif metadata.state.is_prepared:
                self._on_prepared(self, metadata)
            yield

    def __len__(self) -> int:
        return len(self._ids)

    def get(self, transactional_id: str) -> TransactionMetadata | None:
        if transactional_id in self._completed:
            return self._completed[transactional_id][0]
        return self._ids.get(transactional_id)

    def ids(self) -> list[str]:
        return list(self._ids)

    # -- requests ----------------------------------------------------------------------------------------

    def decide(
        self, ticket: Ticket[TransactionAnswer], request: TransactionRequest, now: float, now_ms: int
    ) -> Outcome[TransactionRecord]:
        """Answer: TransactionAnswer, at once or when the markers of the transaction before are committed. Raises
        KafkaError."""
        transactional_id = request.transactional_id
        before = self.get(transactional_id)
        if isinstance(request, EndTransaction) and before is not None and request.producer == before.producer:
            self._check_connection(request, before)
        try:
            after = self._decided(request, before, now_ms)
        except TransactionInDoubtError:
            if isinstance(request, AddPartitions) and not request.may_wait:
                raise
            self._park(ticket, request, now, is_decided=False)
            return Outcome()
        if not self._memory.has_room(after.size_bytes - (0 if before is None else before.size_bytes)):
            raise KafkaError(ErrorCode.POLICY_VIOLATION, "varve.max.transaction.bytes is used up")
        if after is before:
            return Outcome[TransactionRecord]().add_answer(ticket, _answer(after))
        outcome = self._change(after, now)
        if isinstance(request, AddPartitions):
            begun = self._begun_by.get(transactional_id)
            if begun is None or begun.started_ms != after.started_ms:
                self._begun_by[transactional_id] = BegunBy(after.started_ms, request.connection)
                if len(self._begun_by) > MAX_BEGUN_BY:
                    del self._begun_by[next(iter(self._begun_by))]
        if after.state.is_prepared:
            # A new producer has to begin anew when the open transaction is aborted.
            self._park(ticket, request, now, is_decided=isinstance(request, EndTransaction))
        else:
            outcome.add_answer(ticket, _answer(after))
        return outcome

    def _check_connection(self, request: EndTransaction, metadata: TransactionMetadata) -> None:
        """Raises CONCURRENT_TRANSACTIONS for an EndTxn of the present producer that comes by an older connection than
        the transaction that it would end: it was sent to end the one before (KAFKA-17754). A rise of the epoch makes
        this needless."""
        begun = self._begun_by.get(request.transactional_id)
        if begun is None or begun.started_ms != metadata.started_ms:
            return
        if request.client_version < EPOCH_BUMP_VERSION and request.connection < begun.connection:
            raise KafkaError(
                ErrorCode.CONCURRENT_TRANSACTIONS, "the transaction was begun by a later connection"
            )

    def verify(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partitions: Sequence[TopicPartition]
    ) -> list[ErrorCode]:
        """Whether each of the partitions is in the open transaction of this producer (KIP-890)."""
        metadata = self.get(transactional_id)
        if metadata is None:
            return [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * len(partitions)
        errors = []
        for partition in partitions:
            try:
                metadata.verify_partition(producer, partition)
            except KafkaError as refused:
                errors.append(refused.code)
            else:
                errors.append(ErrorCode.NONE)
        return errors

    def _decided(
        self, request: TransactionRequest, before: TransactionMetadata | None, now_ms: int
    ) -> TransactionMetadata:
        if before is None:
            if not isinstance(request, InitProducer):
                raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
            return new_metadata(request.transactional_id, request.new_producer_id, request.timeout_ms, now_ms)
        match request:
            case InitProducer():
                return before.init_producer(
                    request.expected, request.timeout_ms, request.new_producer_id, now_ms
                )
            case AddPartitions():
                return before.add_partitions(
                    request.producer, request.partitions, request.client_version, now_ms
                )
            case EndTransaction():
                return before.end(
                    request.producer,
                    is_commit=request.is_commit,
                    client_version=request.client_version,
                    new_producer_id=request.new_producer_id,
                    now_ms=now_ms,
                )

    def _change(self, after: TransactionMetadata, now: float) -> Outcome[TransactionRecord]:
        """The record of a change; and if an end is decided by it, the order of the markers, when it is committed."""
        transactional_id = after.transactional_id
        if after.state is TransactionState.ONGOING:
            self._times_out_at.setdefault(transactional_id, now + after.timeout_ms / 1000)
        else:
            self._times_out_at.pop(transactional_id, None)
            self._begun_by.pop(transactional_id, None)
        outcome = Outcome([TransactionRecord(transactional_id, after)])
        if after.state.is_prepared:
            outcome.add_answer(Ticket(partial(self._on_prepared, self), lambda _: after), after)
        return outcome

    # -- waiting for markers -----------------------------------------------------------------------------

    def _park(
        self, ticket: Ticket[TransactionAnswer], request: TransactionRequest, now: float, *, is_decided: bool
    ) -> None:
        parked = self._parked.setdefault(request.transactional_id, [])
        if len(parked) >= MAX_PARKED:
            raise TransactionInDoubtError
        parked.append(_Parked(ticket, request, now + PARKED_S, is_decided))

    def complete(self, transactional_id: str, now: float, now_ms: int) -> Completion:
        """All markers of a transaction are committed. The runtime is owed an `update_deadline`."""
        after = self._ids[transactional_id].complete(now_ms)
        self._completed[transactional_id] = after, now + WRITTEN_AFTER_S
        parked = self._parked.pop(transactional_id, [])
        return Completion(
            _answer(after),
            [each.ticket for each in parked if each.is_decided],
            [(each.ticket, each.request) for each in parked if not each.is_decided],
        )

    # -- time --------------------------------------------------------------------------------------------

    def update_deadline(self, key: str) -> None:
        deadlines = [each.deadline for each in self._parked.get(key, ())]
        if key in self._times_out_at:
            deadlines.append(self._times_out_at[key])
        if key in self._completed:
            deadlines.append(self._completed[key][1])
        self._deadlines.set(key, min(deadlines, default=None))

    def next_deadline(self) -> float | None:
        return self._deadlines.next()

    def take_due_keys(self, now: float, limit: int) -> list[str]:
        return self._deadlines.take_due(now, limit)

    def expire(self, key: str, now: float, now_ms: int) -> Outcome[TransactionRecord]:
        """An open transaction has lasted for too long and is aborted; a completed one is written down; or a request has
        waited for too long. The end that it decided is durable, so it is answered as if it were complete; the next one
        has to wait."""
        metadata = self._ids.get(key)
        if metadata is not None and self._times_out_at.get(key, now + 1) <= now:
            return self._change(metadata.time_out(now_ms), now)
        outcome = Outcome[TransactionRecord]()
        completed = self._completed.get(key)
        if completed is not None and completed[1] <= now:
            outcome.records.append(TransactionRecord(key, completed[0]))
        kept: list[_Parked] = []
        for each in self._parked.pop(key, ()):
            if each.deadline > now:
                kept.append(each)
            elif each.is_decided:
                assert metadata is not None
                outcome.add_answer(each.ticket, _answer(metadata.complete(now_ms)))
            else:
                outcome.add_answer(each.ticket, TransactionAnswer(ErrorCode.CONCURRENT_TRANSACTIONS))
        if kept:
            self._parked[key] = kept
        return outcome

    def expire_id(self, expiration_ms: int, now_ms: int, transactional_id: str) -> Outcome[TransactionRecord]:
        """Delete an id that was not used for so long (transactional.id.expiration.ms)."""
        metadata = self.get(transactional_id)
        if metadata is None or not metadata.is_expired(expiration_ms, now_ms):
            return Outcome()
        return Outcome([TransactionRecord(transactional_id, None)])


def _answer(metadata: TransactionMetadata) -> TransactionAnswer:
    return TransactionAnswer(ErrorCode.NONE, metadata.producer)
