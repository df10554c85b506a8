"""The runtime of a coordinator: the part that waits.

A key belongs to one partition of an internal topic, by its hash, and is coordinated by that partition's leader. When
this node begins to lead a partition, the runtime loads its log into a shard, a few records per loop iteration. From
then on

    ask:   decide -> append the records as one batch -> replay them -> answer when the log end seen is committed
    read:  a liveness round -> look -> answer when what was seen is committed

so no answer tells what a later coordinator could not know, and no stale coordinator answers a read. An answer without
records waits, too, until everything appended before it is committed. Whatever ends the leadership discards the shard
and answers every open ticket NOT_COORDINATOR. A write that is refused (the disk is full) has the shard loaded anew.

A shard decides and a codec encodes; the runtime knows neither groups nor transactions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, Generic, TypeVar

import structlog

from broker.coordinator.internal_topic import InternalTopic
from broker.coordinator.led_partition import LedPartition
from broker.coordinator.loading import load
from broker.coordinator.outcome import Outcome, Step
from broker.coordinator.records import RecordCodec, split_into_batches
from broker.coordinator.shard import Shard
from broker.coordinator.ticket import Ticket
from broker.environment import Clock
from broker.replication.events import ReplicaEvents
from broker.replication.reads import Reads
from broker.replication.replica import Replica
from protocol.errors import ErrorCode, KafkaError, ProtocolError
from protocol.records.batch import iter_batches
from protocol.records.builder import NewRecord, build_batch
from storage.errors import CorruptLogError
from storage.log_types import GroupKey

logger = structlog.get_logger()

A = TypeVar("A")
R = TypeVar("R")
S = TypeVar("S", bound=Shard[Any])
#: (shard, ticket, now in seconds of the loop's clock, now in ms of the wall clock) -> what to append and to answer.
Decision = Callable[[S, Ticket[A], float, int], Outcome[R]]

#: Keys that are worked on in one loop iteration, where there is something to do about many.
KEYS_PER_ITERATION = 50
#: The largest batch of a decision. (A commit of offsets is bounded by max.message.bytes, where it is decided.)
MAX_BATCH_BYTES = 16 << 20
#: While the log takes no records (a leadership transfer is under way), due work waits for so long.
POSTPONED_S = 0.05


class _Answers(Generic[S, R]):
    """The answers of one outcome, waiting for the commit."""

    __slots__ = ("_answers", "_led", "_runtime")

    def __init__(
        self,
        runtime: CoordinatorRuntime[S, R],
        led: LedPartition[S],
        answers: list[tuple[Ticket[Any], Any]],
    ) -> None:
        self._runtime = runtime
        self._led = led
        self._answers = answers

    def partition_done(self, slot: int, error: ErrorCode) -> None:
        if error == ErrorCode.NONE:
            for ticket, answer in self._answers:
                self._led.open.pop(ticket, None)
                ticket.answer(answer)
        elif error == ErrorCode.KAFKA_STORAGE_ERROR:
            self._runtime.reload_shard(self._led)
        # Otherwise leadership is lost: all open tickets are answered where that is noticed.


class CoordinatorRuntime(Generic[S, R]):
    """The shards of one coordinator on this node: one for each partition of its internal topic that is led here."""

    def __init__(
        self,
        topic: InternalTopic,
        codec: RecordCodec[R],
        new_shard: Callable[[Replica], S],
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        reads: Reads,
        events: ReplicaEvents,
    ) -> None:
        """`new_shard`: an empty shard for the partition of this replica; its records are of type R."""
        self._topic = topic
        self._codec = codec
        self._new_shard = new_shard
        self._clock = clock
        self._loop = loop
        self._reads = reads
        #: By partition. Invariant: each is current.
        self._led: dict[int, LedPartition[S]] = {}
        self._is_closed = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        #: Called when a shard is loaded and takes requests.
        self.on_loaded: list[Callable[[LedPartition[S]], None]] = []
        events.role_changed.append(self._role_changed)
        events.closed.append(self._replica_closed)

    def close(self) -> None:
        """The node stops: nothing expires any more."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()

    # -- what handlers ask -------------------------------------------------------------------------------

    def ask(
        self,
        key: str,
        reply: Callable[[A], None],
        failure: Callable[[ErrorCode], A],
        decide: Decision[S, A, R],
    ) -> None:
        """Decide about a key. `reply` gets the ticket's answer, once, perhaps much later; where there is none, or
        `decide` raises KafkaError, it gets `failure` of the error."""
        ticket = Ticket(reply, failure)
        try:
            led = self._loaded_partition(key)
            if not led.replica.group.can_propose:
                raise KafkaError(ErrorCode.NOT_COORDINATOR)
        except KafkaError as error:
            ticket.fail(error.code)
            return
        led.open[ticket] = None
        outcome: Outcome[R]
        try:
            outcome = decide(led.shard, ticket, self._loop.time(), self._clock.now_ms())
        except KafkaError as refused:
            outcome = Outcome[R]().add_answer(ticket, ticket.refusal(refused.code))
        self._apply_outcome(led, outcome)
        led.shard.update_deadline(key)
        self._arm_timer(led.shard.next_deadline())

    def ask_confirmed(
        self,
        key: str,
        reply: Callable[[A], None],
        failure: Callable[[ErrorCode], A],
        decide: Decision[S, A, R],
    ) -> None:
        """As `ask`, after a liveness round: where a refusal says what there is, as "no such group" does."""
        try:
            replica = self._loaded_partition(key).replica
        except KafkaError as error:
            reply(failure(error.code))
            return

        def confirmed(keys: set[GroupKey]) -> None:
            if replica.key in keys:
                self.ask(key, reply, failure, decide)
            else:
                reply(failure(ErrorCode.NOT_COORDINATOR))

        self._reads.confirm([replica], confirmed)

    def read(
        self,
        key: str,
        reply: Callable[[A], None],
        failure: Callable[[ErrorCode], A],
        look: Callable[[S], A],
    ) -> None:
        """Look at a key. As `ask`, without a decision. A stale coordinator never answers it."""
        ticket = Ticket(reply, failure)
        try:
            led = self._loaded_partition(key)
        except KafkaError as error:
            ticket.fail(error.code)
            return
        led.open[ticket] = None
        self._reads.confirm([led.replica], lambda keys: self._answer_read(led, ticket, look, keys))

    def _answer_read(
        self, led: LedPartition[S], ticket: Ticket[A], look: Callable[[S], A], keys: set[GroupKey]
    ) -> None:
        if not led.is_current or led.replica.key not in keys:
            led.open.pop(ticket, None)
            ticket.fail(ErrorCode.NOT_COORDINATOR)
            return
        try:
            answer = look(led.shard)
        except KafkaError as refused:
            answer = ticket.refusal(refused.code)
        self._apply_outcome(led, Outcome[R]().add_answer(ticket, answer))

    def read_all(self, reply: Callable[[ErrorCode, list[A]], None], look: Callable[[S], list[A]]) -> None:
        """Look at every shard of this node. COORDINATOR_LOAD_IN_PROGRESS while one is being loaded. A partition that
        could not be loaded is left out, and so is one that is not led here any more when the answer leaves."""
        asked = [led for led in self._led.values() if not led.has_failed]
        if not all(led.is_loaded for led in asked):
            reply(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, [])
            return

        def confirmed(keys: set[GroupKey]) -> None:
            left = [led for led in asked if led.is_current and led.replica.key in keys]
            found: list[A] = []
            missing = len(left)

            def one_done(part: list[A]) -> None:
                nonlocal missing
                missing -= 1
                found.extend(part)
                if missing == 0:
                    reply(ErrorCode.NONE, found)

            if not left:
                reply(ErrorCode.NONE, [])
            for led in left:
                ticket: Ticket[list[A]] = Ticket(one_done, lambda error: [])
                led.open[ticket] = None
                self._apply_outcome(led, Outcome[R]().add_answer(ticket, look(led.shard)))

        self._reads.confirm([led.replica for led in asked], confirmed)

    def _loaded_partition(self, key: str) -> LedPartition[S]:
        led = self._led.get(self._topic.partition_of(key))
        if led is None or led.has_failed:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        if not led.is_loaded:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return led

    # -- what a coordinator does unasked -----------------------------------------------------------------

    def loaded_partitions(self) -> list[LedPartition[S]]:
        return [led for led in self._led.values() if led.is_loaded]

    def is_active(self, led: LedPartition[S]) -> bool:
        """Its shard is not discarded, and the node does not stop."""
        return led.is_current and not self._is_closed

    def carry_out_steps(self, led: LedPartition[S], steps: Iterator[Step[R]]) -> None:
        """Carry out step by step, KEYS_PER_ITERATION with each loop iteration, while the partition is active."""
        if not self.is_active(led):
            return
        if not led.replica.group.can_propose:
            self._loop.call_later(POSTPONED_S, self.carry_out_steps, led, steps)
            return
        count = 0
        for key, outcome in islice(steps, KEYS_PER_ITERATION):
            count += 1
            self._apply_outcome(led, outcome)
            led.shard.update_deadline(key)
        self._arm_timer(led.shard.next_deadline())
        if count == KEYS_PER_ITERATION:
            self._loop.call_soon(self.carry_out_steps, led, steps)

    # -- leadership --------------------------------------------------------------------------------------

    def _role_changed(self, replica: Replica) -> None:
        """A replica of any topic serves, or serves no more, or in another term."""
        if replica.topic != self._topic.name:
            return
        led = self._led.get(replica.partition)
        if led is not None:
            if replica.is_serving and led.replica is replica and led.epoch == replica.leader_epoch:
                return
            self._discard_shard(led, ErrorCode.NOT_COORDINATOR)
        if replica.is_serving and not self._is_closed:
            self._begin_loading(replica)

    def _replica_closed(self, key: GroupKey) -> None:
        """A replica of any topic is gone from this node."""
        led = self._led.get(key.partition)
        if led is not None and led.replica.key == key:
            self._discard_shard(led, ErrorCode.NOT_COORDINATOR)

    def reload_shard(self, led: LedPartition[S]) -> None:
        """What was decided and replayed is not in the log, so the shard is loaded anew."""
        if led.is_current:
            self._discard_shard(led, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            if led.replica.is_serving:
                self._begin_loading(led.replica)

    def _discard_shard(self, led: LedPartition[S], error: ErrorCode) -> None:
        led.is_current = False
        del self._led[led.replica.partition]
        tickets, led.open = led.open, {}
        for ticket in tickets:
            ticket.fail(error)

    # -- loading -----------------------------------------------------------------------------------------

    def _begin_loading(self, replica: Replica) -> None:
        led = LedPartition(replica, self._new_shard(replica))
        self._led[replica.partition] = led
        self._load_slice(led, load(replica, self._codec, led.shard))

    def _load_slice(self, led: LedPartition[S], steps: Iterator[None]) -> None:
        """The next slice follows in the next loop iteration."""
        if not self.is_active(led):
            return
        try:
            for _ in steps:
                self._loop.call_soon(self._load_slice, led, steps)
                return
        except CorruptLogError as error:
            led.replica.host.log_corrupt(led.replica, error)
            return
        except (ProtocolError, KafkaError) as error:
            # A newer build wrote it, so it is not damaged. Kafka refuses such a partition, too, and the node goes on.
            led.has_failed = True
            logger.error(
                "a partition of an internal topic cannot be decoded",
                topic=self._topic.name,
                partition=led.replica.partition,
                reason=str(error),
            )
            return
        led.is_loaded = True
        led.shard.loaded(self._loop.time())
        self._arm_timer(led.shard.next_deadline())
        for loaded in self.on_loaded:
            loaded(led)

    # -- outcomes ----------------------------------------------------------------------------------------

    def _apply_outcome(self, led: LedPartition[S], outcome: Outcome[R]) -> None:
        """Append, replay, and answer when that, and all before it, is committed."""
        if not led.is_current:
            return  # the decision before this one could not be carried out
        replica = led.replica
        end_offset = replica.next_offset
        if outcome.records:
            try:
                end_offset = self._append_records(replica, outcome.records)
            except KafkaError as error:
                # The machines of the shard have moved on already.
                logger.error(
                    "a coordinator's decision is not appended", topic=self._topic.name, reason=str(error)
                )
                self.reload_shard(led)
                return
            for record in outcome.records:
                led.shard.replay(record)
        if outcome.records or outcome.answers:
            replica.waits.add_commit(end_offset, _Answers(self, led, outcome.answers), 0)

    def _append_records(self, replica: Replica, records: Sequence[R]) -> int:
        """Returns the end offset."""
        end_offset = replica.next_offset
        encoded = [self._codec.encode(record) for record in records]
        for part in split_into_batches(encoded, MAX_BATCH_BYTES):
            batch = build_batch([NewRecord(key, value, self._clock.now_ms()) for key, value in part])
            if len(batch) > MAX_BATCH_BYTES:
                raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, f"a decision of {len(batch)} bytes")
            header = next(iter_batches(memoryview(batch)))[1]
            _, end_offset = replica.append(header, batch)
        return end_offset

    # -- time --------------------------------------------------------------------------------------------

    def _arm_timer(self, time: float | None) -> None:
        """Have `_expire_due_keys` called by then, if ever. One timer for all shards."""
        if time is None or self._is_closed:
            return
        if self._timer is not None:
            if self._timer_at <= time:
                return
            self._timer.cancel()
        self._timer_at = time
        self._timer = self._loop.call_at(time, self._expire_due_keys)

    def _expire_due_keys(self) -> None:
        """Some of them with each loop iteration: after a fail-over many have the same deadline."""
        self._timer = None
        now, left = self._loop.time(), KEYS_PER_ITERATION
        for led in list(self._led.values()):
            if not led.is_loaded:
                continue
            if not led.replica.group.can_propose:
                if led.shard.next_deadline() is not None:
                    self._arm_timer(now + POSTPONED_S)
                continue
            due = led.shard.take_due_keys(now, left)
            left -= len(due)
            for key in due:
                self._apply_outcome(led, led.shard.expire(key, now, self._clock.now_ms()))
                led.shard.update_deadline(key)
            self._arm_timer(led.shard.next_deadline())
