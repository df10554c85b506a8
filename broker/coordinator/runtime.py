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
from collections.abc import Callable, Generator, Iterable
from functools import partial
from itertools import chain
from typing import Any, Generic, TypeVar

import structlog

from broker.coordinator.decisions import Decisions
from broker.coordinator.internal_topic import InternalTopic
from broker.coordinator.led_partition import LedPartition
from broker.coordinator.loading import load
from broker.coordinator.outcome import Decided, Outcome
from broker.coordinator.reading import Reading
from broker.coordinator.records import RecordCodec
from broker.coordinator.shard import Shard
from broker.coordinator.ticket import Ticket
from broker.coordinator.transaction_ends import TransactionEnds
from broker.environment import Clock
from broker.replication.events import ReplicaEvents
from broker.replication.reads import Reads
from broker.replication.replica import Replica
from broker.scheduling.background import PAUSE, Background, Steps
from protocol.errors import ErrorCode, KafkaError, ProtocolError
from storage.errors import CorruptLogError
from storage.log_types import GroupKey

logger = structlog.get_logger()

A = TypeVar("A")
R = TypeVar("R")
S = TypeVar("S", bound=Shard[Any])
#: (shard, ticket, now in seconds of the loop's clock, now in ms of the wall clock) -> what to append and to answer.
Decision = Callable[[S, Ticket[A], float, int], Decided[R]]

#: While the log takes no records (a leadership transfer is under way), due work waits for so long.
POSTPONED_S = 0.05


class CoordinatorRuntime(Generic[S, R]):
    """The shards of one coordinator on this node: one for each partition of its internal topic that is led here."""

    def __init__(
        self,
        topic: InternalTopic,
        codec: RecordCodec[R],
        new_shard: Callable[[Replica], S],
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        background: Background,
        reads: Reads,
        events: ReplicaEvents,
    ) -> None:
        """`new_shard`: an empty shard for the partition of this replica; its records are of type R."""
        self._topic = topic
        self._codec = codec
        self._new_shard = new_shard
        self._clock = clock
        self._loop = loop
        self._background = background
        self._reads = reads
        self._decisions = Decisions[S, R](
            topic.name, codec, clock, background, reads, self.reload_shard, self._carried_out
        )
        #: By partition. Invariant: each is current.
        self._led: dict[int, LedPartition[S]] = {}
        self._is_closed = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._is_expiring = False
        #: Called when a shard is loaded and takes requests.
        self.on_loaded: list[Callable[[LedPartition[S]], None]] = []
        self._ends = TransactionEnds[S](
            topic.name, self._led.get, background, self._decisions, self._carried_out
        )
        #: Appends a marker to a partition of the coordinator's topic.
        self.append_marker = self._ends.append_marker
        events.marker_appended.append(self._ends.marker_appended)
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
        if led.is_busy(key):
            led.when_free(key, partial(self._decide, led, key, ticket, decide))
        else:
            self._decide(led, key, ticket, decide)

    def _decide(self, led: LedPartition[S], key: str, ticket: Ticket[A], decide: Decision[S, A, R]) -> None:
        if not led.replica.group.can_propose:
            led.open.pop(ticket, None)
            ticket.fail(ErrorCode.NOT_COORDINATOR)
            return
        decided: Decided[R]
        try:
            decided = decide(led.shard, ticket, self._loop.time(), self._clock.now_ms())
        except KafkaError as refused:
            decided = Outcome[R]().add_answer(ticket, ticket.refusal(refused.code))
        else:
            if not isinstance(decided, Outcome):
                decided = _refusing(decided, ticket)
        self._decisions.carry_out(led, key, decided)

    def _carried_out(self, led: LedPartition[S], key: str) -> None:
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

    def replica_of(self, key: str) -> Replica:
        """The partition of a key. Raises KafkaError if it is not coordinated here."""
        return self._loaded_partition(key).replica

    def reading(self) -> Reading[S]:
        """For a request that looks at keys. A stale coordinator never answers it."""
        return Reading(self._loaded_partition, self._led.values, self._reads, self._decisions)

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

    def partition_of(self, shard: S) -> LedPartition[S] | None:
        """None: the shard is discarded."""
        return next((led for led in self._led.values() if led.shard is shard), None)

    def is_active(self, led: LedPartition[S]) -> bool:
        """Its shard is not discarded, and the node does not stop."""
        return led.is_current and not self._is_closed

    def carry_out(
        self, led: LedPartition[S], keys: Iterable[str], decide: Callable[[str], Decided[R]]
    ) -> Steps:
        """The steps that decide about each of these keys, and carry it out, while the partition is active."""
        for key in keys:
            # Nothing is decided while the log takes no records.
            while self.is_active(led) and (led.is_busy(key) or not led.replica.group.can_propose):
                yield PAUSE
            if not self.is_active(led):
                return
            self._decisions.carry_out(led, key, decide(key))
            yield
            while led.is_busy(key) and self.is_active(led):
                yield PAUSE

    def act(self, led: LedPartition[S], key: str, action: Callable[[], None]) -> None:
        """Call `action` when no decision about the key is under way and the log takes records. It is not called if the
        shard is discarded before."""

        def free() -> None:
            if led.replica.group.can_propose:
                action()
            else:
                self._loop.call_later(POSTPONED_S, self.act, led, key, action)

        if self.is_active(led):
            led.when_free(key, free)

    def note_deadline(self, led: LedPartition[S], key: str) -> None:
        """Within `act`: the deadline of the key may be another one."""
        self._carried_out(led, key)

    def ask_again(self, led: LedPartition[S], key: str, ticket: Ticket[A], decide: Decision[S, A, R]) -> None:
        """Decide about a ticket of `ask` that a decision has not answered."""
        if led.is_current:
            led.when_free(key, partial(self._decide, led, key, ticket, decide))

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
        self._background.run(self._load(led))

    def _load(self, led: LedPartition[S]) -> Steps:
        try:
            for step in load(led.replica, self._codec, led.shard):
                yield step
                if not self.is_active(led):
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
        for step in chain(
            led.shard.loaded(self._loop.time(), self._clock.now_ms()), self._ends.end_unread(led)
        ):
            yield step
            if not self.is_active(led):
                return
        led.is_loaded = True
        self._arm_timer(led.shard.next_deadline())
        for loaded in self.on_loaded:
            loaded(led)

    # -- time --------------------------------------------------------------------------------------------

    def _arm_timer(self, time: float | None) -> None:
        """Have keys whose deadline has come expire by then, if ever. One timer for all shards."""
        if time is None or self._is_closed:
            return
        if self._timer is not None:
            if self._timer_at <= time:
                return
            self._timer.cancel()
        self._timer_at = time
        self._timer = self._loop.call_at(time, self._time_has_come)

    def _time_has_come(self) -> None:
        self._timer = None
        if not self._is_expiring:
            self._is_expiring = True
            self._background.run(self._expire_due_keys())

    def _expire_due_keys(self) -> Steps:
        """In steps: after a fail-over many have the same deadline."""
        for led in list(self._led.values()):
            yield from self._expire_keys_of(led)
        self._is_expiring = False
        for led in self.loaded_partitions():
            self._arm_timer(led.shard.next_deadline())

    def _expire_keys_of(self, led: LedPartition[S]) -> Steps:
        while self.is_active(led) and led.is_loaded:
            now = self._loop.time()
            if not led.replica.group.can_propose:
                if led.shard.next_deadline() is not None:
                    self._arm_timer(now + POSTPONED_S)
                return
            due = led.shard.take_due_keys(now, 1)
            if not due:
                return
            (key,) = due
            led.when_free(key, partial(self._expire, led, key))
            yield

    def _expire(self, led: LedPartition[S], key: str) -> None:
        if not led.replica.group.can_propose:
            self._carried_out(led, key)  # nothing is: it is still due
            return
        self._decisions.carry_out(led, key, led.shard.expire(key, self._loop.time(), self._clock.now_ms()))


def _refusing(
    steps: Generator[Any, None, Outcome[R]], ticket: Ticket[Any]
) -> Generator[Any, None, Outcome[R]]:
    """A decision in steps, which may be refused as any other."""
    try:
        return (yield from steps)
    except KafkaError as refused:
        return Outcome[R]().add_answer(ticket, ticket.refusal(refused.code))
