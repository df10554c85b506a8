"""Carrying out decisions: their records are appended and replayed, and their answers leave when these are committed.

Most decisions have a few records, and are carried out at once. A decision may have thousands, or take long to be made:
then it is made, encoded and replayed in steps. Other decisions about the same key wait meanwhile, so that each sees
what the ones before it have done; those about other keys go on.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import Any, Generic, TypeVar

import structlog

from broker.coordinator.led_partition import LedPartition
from broker.coordinator.outcome import FEW, Decided, Outcome
from broker.coordinator.records import RecordCodec, split_into_batches
from broker.coordinator.shard import Shard
from broker.coordinator.ticket import Ticket
from broker.environment import Clock
from broker.replication.reads import Reads
from broker.replication.replica import Replica
from broker.scheduling.background import PAUSE, Background, Steps
from protocol.errors import ErrorCode, KafkaError
from protocol.records.batch import NO_PRODUCER_ID, parse_header
from protocol.records.builder import BatchBuilder, NewRecord
from storage.log_types import GroupKey

logger = structlog.get_logger()

R = TypeVar("R")
S = TypeVar("S", bound=Shard[Any])

#: Records that are encoded or replayed in one step. Most take a microsecond or two, but some are large.
RECORDS_PER_STEP = 10
#: The largest batch of a decision. (A commit of offsets is bounded by max.message.bytes, where it is decided.)
MAX_BATCH_BYTES = 16 << 20
#: The largest batch of tombstones: a decision may have any number of them, and they are split.
MAX_TOMBSTONES_BYTES = 1 << 20


class Answers(Generic[S]):
    """The answers of one outcome, waiting until it is replayed and committed. If it cannot be written, the shard is
    loaded anew."""

    __slots__ = ("_answers", "_decisions", "_led", "_missing")

    def __init__(
        self,
        decisions: Decisions[S, Any],
        led: LedPartition[S],
        answers: list[tuple[Ticket[Any], Any]],
        *,
        is_replayed: bool,
    ) -> None:
        self._decisions = decisions
        self._led = led
        self._answers = answers
        self._missing = 1 if is_replayed else 2

    def one_done(self) -> None:
        """It is replayed, or it is committed."""
        self._missing -= 1
        if not self._missing:
            self._decisions.give_answers(self._led, self._answers)

    def partition_done(self, slot: int, error: ErrorCode) -> None:
        if error == ErrorCode.NONE:
            self.one_done()
        elif error == ErrorCode.KAFKA_STORAGE_ERROR:
            self._decisions.reload(self._led)
        # Otherwise leadership is lost: all open tickets are answered where that is noticed.


class Decisions(Generic[S, R]):
    """The decisions of one coordinator on this node."""

    def __init__(
        self,
        topic: str,
        codec: RecordCodec[R],
        clock: Clock,
        background: Background,
        reads: Reads,
        reload: Callable[[LedPartition[S]], None],
        carried_out: Callable[[LedPartition[S], str], None],
    ) -> None:
        """`reload`: has a shard loaded anew that has moved on from its log. `carried_out` is called after each decision
        about a key."""
        self._topic = topic
        self._codec = codec
        self._clock = clock
        self._background = background
        self._reads = reads
        self.reload = reload
        self._carried_out = carried_out

    def carry_out(self, led: LedPartition[S], key: str, decided: Decided[R]) -> None:
        """The key must not be busy. It is until the decision is carried out, if that takes steps."""
        if isinstance(decided, Outcome) and len(decided.records) <= FEW:
            self.apply(led, decided)
            self._carried_out(led, key)
        else:
            led.occupy(key)
            self._background.run(self._carry_out_in_steps(led, key, decided))

    def apply(self, led: LedPartition[S], outcome: Outcome[R]) -> None:
        """Append, replay, and answer when that, and all before it, is committed."""
        if outcome.records:
            for _ in self._apply(led, outcome):
                pass
        elif outcome.answers and led.is_current:
            replica, answers = led.replica, Answers(self, led, outcome.answers, is_replayed=True)
            replica.waits.add_commit(replica.next_offset, answers, 0)

    def _carry_out_in_steps(self, led: LedPartition[S], key: str, decided: Decided[R]) -> Steps:
        for step in self._decide_and_apply(led, key, decided):
            yield step
            if not led.is_current:
                return  # the shard is discarded, with all that waits for the key

    def _decide_and_apply(self, led: LedPartition[S], key: str, decided: Decided[R]) -> Steps:
        outcome = decided if isinstance(decided, Outcome) else (yield from decided)
        while not led.replica.group.can_propose:
            yield PAUSE  # a leadership transfer is under way
        yield from self._apply(led, outcome)
        if led.is_current:
            self._carried_out(led, key)
            yield from led.release(key)

    def _apply(self, led: LedPartition[S], outcome: Outcome[R]) -> Steps:
        if not led.is_current:
            return  # the decision before this one could not be carried out
        if not outcome.records:
            self.apply(led, outcome)
            return
        replica, answers = led.replica, Answers(self, led, outcome.answers, is_replayed=False)
        try:
            end_offset = yield from self._append(replica, outcome)
        except KafkaError as error:
            if outcome.producer is not None:
                self._refuse_when_confirmed(led, outcome, error.code)
                return
            # The machines of the shard have moved on already.
            logger.error(
                "a coordinator's decision is not appended",
                topic=self._topic,
                reason=str(error),
                cause=self._topic,
            )
            self.reload(led)
            return
        # Before the next step: the write may be refused when the loop iteration ends.
        replica.waits.add_commit(end_offset, answers, 0)
        replay = led.shard.replay
        if outcome.producer is not None:
            replay = partial(led.shard.replay_pending, outcome.producer[0])
        for count, record in enumerate(outcome.records, 1):
            replay(record)
            if count % RECORDS_PER_STEP == 0:
                yield
        answers.one_done()

    def _refuse_when_confirmed(self, led: LedPartition[S], outcome: Outcome[R], error: ErrorCode) -> None:
        """INVALID_TXN_STATE ends a producer: a stale coordinator, which may lack the marker, must not answer it."""

        def confirmed(keys: set[GroupKey]) -> None:
            code = error if led.replica.key in keys else ErrorCode.NOT_COORDINATOR
            refused = Outcome[R]()
            for ticket, _ in outcome.answers:
                refused.add_answer(ticket, ticket.refusal(code))
            self.apply(led, refused)

        self._reads.confirm([led.replica], confirmed)

    def _append(self, replica: Replica, outcome: Outcome[R]) -> Generator[None, None, int]:
        """Returns the end offset. Raises KafkaError."""
        encoded = []
        for count, record in enumerate(outcome.records, 1):
            encoded.append(self._codec.encode(record))
            if count % RECORDS_PER_STEP == 0:
                yield
        batches = []
        producer_id, producer_epoch = outcome.producer or (NO_PRODUCER_ID, -1)
        now_ms = self._clock.now_ms()
        for part in split_into_batches(encoded, MAX_TOMBSTONES_BYTES):
            builder = BatchBuilder()
            for count, (key, value) in enumerate(part, 1):
                builder.add(NewRecord(key, value, now_ms))
                if count % RECORDS_PER_STEP == 0:
                    yield
            batches.append(
                builder.finish(
                    producer_id=producer_id,
                    producer_epoch=producer_epoch,
                    is_transactional=outcome.producer is not None,
                )
            )
        if outcome.check_append is not None:
            outcome.check_append()
        end_offset = replica.next_offset
        # Without a pause: the batches of one decision follow each other.
        for batch in batches:
            if len(batch) > MAX_BATCH_BYTES:
                raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, f"a decision of {len(batch)} bytes")
            _, end_offset = replica.append(parse_header(batch), batch)
        return end_offset

    def give_answers(self, led: LedPartition[S], answers: list[tuple[Ticket[Any], Any]]) -> None:
        if len(answers) <= FEW:
            for _ in self._give(led, answers):
                pass
        else:
            self._background.run(self._give(led, answers))

    def _give(self, led: LedPartition[S], answers: list[tuple[Ticket[Any], Any]]) -> Steps:
        for ticket, answer in answers:
            led.open.pop(ticket, None)
            ticket.answer(answer)
            yield
