"""The coordinator at work: the part of `broker.groups` that waits.

A group belongs to one partition of `__consumer_offsets`, by the hash of its id, and is coordinated by that partition's
leader. When this node begins to lead a partition its log is loaded into a `Shard`, a few records per turn. From then on

    ask:   decide -> append the records as one batch -> replay them -> answer when the log end seen is committed
    read:  a liveness round -> look -> answer when what was seen is committed

so nothing is answered that a later coordinator could not know of, and nothing by a coordinator of yesterday. An answer
without records waits, too, until everything appended before it is committed. Whatever ends the leadership throws the
shard away and answers every open ticket NOT_COORDINATOR; a refused write (the disk is full) has the shard loaded anew.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, TypeVar
from uuid import UUID

import structlog

from broker.config.layers import LiveSettings
from broker.controller.client import ControllerClient
from broker.controller.service import MetadataService
from broker.coordinator.internal_topic import InternalTopic
from broker.coordinator.loading import load
from broker.coordinator.outcome import Answer, Outcome, Step
from broker.coordinator.records import split_into_batches
from broker.coordinator.ticket import Ticket
from broker.environment import Clock
from broker.groups.records import GROUP_RECORDS, GroupRecord
from broker.groups.shard import Shard
from broker.metadata.ids import OFFSETS_TOPIC_NAME
from broker.metadata.image import Change, TopicChanged, TopicCreated, TopicDeleted
from broker.replication.events import ReplicaEvents
from broker.replication.reads import Reads
from broker.replication.replica import Replica
from broker.scheduling.ticks import Ticks
from protocol.errors import ErrorCode, KafkaError
from protocol.records.batch import iter_batches
from protocol.records.builder import NewRecord, build_batch
from storage.errors import CorruptLogError
from storage.log_types import GroupKey

logger = structlog.get_logger()

A = TypeVar("A")
#: (shard, ticket, now in seconds of the loop's clock, now in ms of the wall clock) -> what to append and to answer.
Decision = Callable[[Shard, "Ticket[Any]", float, int], Outcome[GroupRecord]]

#: Groups that are looked at in one turn of the loop, where all of them are, or many have a deadline.
GROUPS_PER_TURN = 50
#: The largest batch of a decision. (A commit is bounded by max.message.bytes, where it is decided.)
MAX_BATCH_BYTES = 16 << 20
#: While the log takes no records (a hand-over is under way), what is due waits for so long.
POSTPONED_S = 0.05
#: After a question that no controller has answered.
ASK_AGAIN_S = 1.0


class _Served:
    """A partition of `__consumer_offsets` that this node leads, in one term."""

    def __init__(self, replica: Replica, shard: Shard) -> None:
        self.replica = replica
        self.epoch = replica.leader_epoch
        self.shard = shard
        self.is_loaded = False
        #: Cleared when the shard is thrown away; who waits for the disk or for a peer looks here.
        self.is_current = True
        #: Every ticket that was taken and not answered, parked ones included.
        self.open: dict[Ticket[Any], None] = {}


class _Answers:
    """The answers of one outcome, waiting for the commit."""

    __slots__ = ("_answers", "_coordinator", "_served")

    def __init__(
        self, coordinator: GroupCoordinator, served: _Served, answers: list[tuple[Ticket[Any], Answer]]
    ) -> None:
        self._coordinator = coordinator
        self._served = served
        self._answers = answers

    def partition_done(self, slot: int, error: ErrorCode) -> None:
        if error == ErrorCode.NONE:
            for ticket, answer in self._answers:
                self._served.open.pop(ticket, None)
                ticket.answer(answer)
        elif error == ErrorCode.KAFKA_STORAGE_ERROR:
            self._coordinator.write_refused(self._served)
        # Otherwise leadership is lost: all open tickets are answered where that is noticed.


class GroupCoordinator:
    """The shards of this node."""

    def __init__(
        self,
        settings: LiveSettings,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        rng: random.Random,
        metadata: MetadataService,
        reads: Reads,
        controller: ControllerClient,
        topic: InternalTopic,
        events: ReplicaEvents,
        ticks: Ticks,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._loop = loop
        self._metadata = metadata
        self._reads = reads
        self._controller = controller
        self._rng = rng
        self._served: dict[int, _Served] = {}
        self._topic = topic
        self._is_closed = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        events.role_changed.append(self._role_changed)
        events.closed.append(self._replica_closed)
        metadata.on_change.append(self._image_changed)
        ticks.every(settings.config.offsets_retention_check_interval_ms / 1000, self._expire_offsets)

    def close(self) -> None:
        """The node stops: nothing expires any more."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()

    # -- what handlers ask -------------------------------------------------------------------------------

    def ask(
        self,
        group_id: str,
        reply: Callable[[A], None],
        failure: Callable[[ErrorCode], A],
        decide: Decision,
    ) -> None:
        """Decide about a group. `reply` gets the ticket's answer, once, perhaps much later; where there is none, or
        `decide` raises KafkaError, it gets `failure` of the error."""
        ticket = Ticket(reply, failure)
        try:
            served = self._serving(group_id)
            if not served.replica.group.can_propose:
                raise KafkaError(ErrorCode.NOT_COORDINATOR)
        except KafkaError as error:
            ticket.fail(error.code)
            return
        served.open[ticket] = None
        try:
            outcome = decide(served.shard, ticket, self._loop.time(), self._clock.now_ms())
        except KafkaError as refused:
            outcome = Outcome(answers=[(ticket, ticket.refusal(refused.code))])
        self._carry_out(served, outcome)
        served.shard.update_deadline(group_id)
        self._arm(served.shard.next_deadline())

    def ask_confirmed(
        self,
        group_id: str,
        reply: Callable[[A], None],
        failure: Callable[[ErrorCode], A],
        decide: Decision,
    ) -> None:
        """As `ask`, after a liveness round: where a refusal says what there is, as "no such group" does."""
        try:
            replica = self._serving(group_id).replica
        except KafkaError as error:
            reply(failure(error.code))
            return

        def confirmed(keys: set[GroupKey]) -> None:
            if replica.key in keys:
                self.ask(group_id, reply, failure, decide)
            else:
                reply(failure(ErrorCode.NOT_COORDINATOR))

        self._reads.confirm([replica], confirmed)

    def read(
        self,
        group_id: str,
        reply: Callable[[A], None],
        failure: Callable[[ErrorCode], A],
        look: Callable[[Shard], A],
    ) -> None:
        """Look at a group. As `ask`, without a decision, and never by a coordinator of yesterday."""
        ticket = Ticket(reply, failure)
        try:
            served = self._serving(group_id)
        except KafkaError as error:
            ticket.fail(error.code)
            return
        served.open[ticket] = None
        self._reads.confirm([served.replica], lambda keys: self._look(served, ticket, look, keys))

    def _look(
        self, served: _Served, ticket: Ticket[A], look: Callable[[Shard], A], keys: set[GroupKey]
    ) -> None:
        if not served.is_current or served.replica.key not in keys:
            served.open.pop(ticket, None)
            ticket.fail(ErrorCode.NOT_COORDINATOR)
            return
        try:
            answer = look(served.shard)
        except KafkaError as refused:
            answer = ticket.refusal(refused.code)
        self._carry_out(served, Outcome(answers=[(ticket, answer)]))

    def read_all(self, reply: Callable[[ErrorCode, list[A]], None], look: Callable[[Shard], list[A]]) -> None:
        """Look at every shard of this node. COORDINATOR_LOAD_IN_PROGRESS while one is being loaded; what is not led
        here any more when the answer leaves is left out."""
        asked = list(self._served.values())
        if not all(served.is_loaded for served in asked):
            reply(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, [])
            return

        def confirmed(keys: set[GroupKey]) -> None:
            left = [served for served in asked if served.is_current and served.replica.key in keys]
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
            for served in left:
                ticket: Ticket[list[A]] = Ticket(one_done, lambda error: [])
                served.open[ticket] = None
                self._carry_out(served, Outcome(answers=[(ticket, look(served.shard))]))

        self._reads.confirm([served.replica for served in asked], confirmed)

    def _serving(self, group_id: str) -> _Served:
        served = self._served.get(self._topic.partition_of(group_id))
        if served is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        if not served.is_loaded:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return served

    # -- leadership --------------------------------------------------------------------------------------

    def _role_changed(self, replica: Replica) -> None:
        """A replica of `__consumer_offsets` serves, or serves no more, or in another term."""
        if replica.topic != OFFSETS_TOPIC_NAME:
            return
        served = self._served.get(replica.partition)
        if served is not None:
            if replica.is_serving and served.replica is replica and served.epoch == replica.leader_epoch:
                return
            self._drop(served, ErrorCode.NOT_COORDINATOR)
        if replica.is_serving and not self._is_closed:
            self._begin(replica)

    def _replica_closed(self, key: GroupKey) -> None:
        """A replica of any topic is gone from this node."""
        served = self._served.get(key.partition)
        if served is not None and served.replica.key == key:
            self._drop(served, ErrorCode.NOT_COORDINATOR)

    def write_refused(self, served: _Served) -> None:
        """What was decided and replayed is not in the log: read it anew."""
        if served.is_current:
            self._drop(served, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            if served.replica.is_serving:
                self._begin(served.replica)

    def _drop(self, served: _Served, error: ErrorCode) -> None:
        served.is_current = False
        del self._served[served.replica.partition]
        tickets, served.open = served.open, {}
        for ticket in tickets:
            ticket.fail(error)

    # -- loading -----------------------------------------------------------------------------------------

    def _begin(self, replica: Replica) -> None:
        shard = Shard(
            self._settings.config, self._metadata.image, self._rng, replica.config.max_message_bytes
        )
        served = _Served(replica, shard)
        self._served[replica.partition] = served
        self._load(served, load(replica, GROUP_RECORDS, shard))

    def _load(self, served: _Served, steps: Iterator[None]) -> None:
        """One slice; the next with the next turn."""
        if not served.is_current or self._is_closed:
            return
        try:
            for _ in steps:
                self._loop.call_soon(self._load, served, steps)
                return
        except CorruptLogError as error:
            served.replica.host.log_corrupt(served.replica, error)
            return
        served.is_loaded = True
        served.shard.loaded(self._loop.time())
        if served.shard.group_ids():
            logger.info(
                "groups are loaded", partition=served.replica.partition, count=len(served.shard.group_ids())
            )
        self._arm(served.shard.next_deadline())
        self._look_for_deleted_topics(served)

    # -- carrying out ------------------------------------------------------------------------------------

    def _carry_out(self, served: _Served, outcome: Outcome[GroupRecord]) -> None:
        """Append, replay, and answer when that, and all before it, is committed."""
        if not served.is_current:
            return  # the decision before this one could not be carried out
        replica = served.replica
        end_offset = replica.next_offset
        if outcome.records:
            try:
                end_offset = self._append(replica, outcome.records)
            except KafkaError as error:
                # The machines have moved on already.
                logger.error("a decision about groups is not appended", reason=str(error))
                self.write_refused(served)
                return
            for record in outcome.records:
                served.shard.replay(record)
        if outcome.records or outcome.answers:
            replica.wait_committed(end_offset, _Answers(self, served, outcome.answers), 0)

    def _append(self, replica: Replica, records: Sequence[GroupRecord]) -> int:
        end_offset = replica.next_offset
        encoded = [GROUP_RECORDS.encode(record) for record in records]
        for part in split_into_batches(encoded, MAX_BATCH_BYTES):
            batch = build_batch([NewRecord(key, value, self._clock.now_ms()) for key, value in part])
            if len(batch) > MAX_BATCH_BYTES:
                raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, f"a decision of {len(batch)} bytes")
            header = next(iter_batches(memoryview(batch)))[1]
            _, end_offset = replica.append(header, batch)
        return end_offset

    # -- time --------------------------------------------------------------------------------------------

    def _arm(self, time: float | None) -> None:
        """Have `_expire` called by then, if ever. One timer for all shards."""
        if time is None or self._is_closed:
            return
        if self._timer is not None:
            if self._timer_at <= time:
                return
            self._timer.cancel()
        self._timer_at = time
        self._timer = self._loop.call_at(time, self._expire)

    def _expire(self) -> None:
        """Of the groups whose time has come, some with each turn of the loop: those of members that were lost with the
        coordinator before have it at the same moment."""
        self._timer = None
        now, left = self._loop.time(), GROUPS_PER_TURN
        for served in list(self._served.values()):
            if not served.is_loaded:
                continue
            if not served.replica.group.can_propose:
                if served.shard.next_deadline() is not None:
                    self._arm(now + POSTPONED_S)
                continue
            due = served.shard.take_due_keys(now, left)
            left -= len(due)
            for group_id in due:
                self._carry_out(served, served.shard.expire(group_id, now, self._clock.now_ms()))
                served.shard.update_deadline(group_id)
            self._arm(served.shard.next_deadline())

    # -- what is done about many groups ------------------------------------------------------------------

    def _image_changed(self, change: Change) -> None:
        """A committed change of the cluster's metadata."""
        if isinstance(change, TopicCreated | TopicChanged | TopicDeleted):
            for served in list(self._served.values()):
                if served.is_loaded:
                    self._walk(served, served.shard.image_changed(change))

    def _expire_offsets(self, now: float) -> None:
        """Called every offsets.retention.check.interval.ms."""
        for served in list(self._served.values()):
            if served.is_loaded:
                self._walk(served, served.shard.expire_offsets(self._clock.now_ms()))
                self._look_for_deleted_topics(served)

    def _look_for_deleted_topics(self, served: _Served) -> None:
        """A topic may have been deleted while nobody led the partition. The image of this node may be behind and not
        have a topic yet, so the controller says which are gone."""
        if not served.is_current or self._is_closed:
            return
        unknown = served.shard.unknown_topics()
        if not unknown:
            return

        def answered(result: dict[str, Any]) -> None:
            if result["error_code"] != ErrorCode.NONE:
                self._loop.call_later(ASK_AGAIN_S, self._look_for_deleted_topics, served)
                return
            deleted = {UUID(topic_id) for topic_id in result["deleted"]}
            self._walk(served, served.shard.forget_topics(deleted))

        arguments = {"topic_ids": sorted(str(topic_id) for topic_id in unknown)}
        self._controller.call("deleted_topics", arguments, answered)

    def _walk(self, served: _Served, steps: Iterator[Step[GroupRecord]]) -> None:
        """Carry out step by step, some with each turn of the loop."""
        if not served.is_current or self._is_closed:
            return
        if not served.replica.group.can_propose:
            self._loop.call_later(POSTPONED_S, self._walk, served, steps)
            return
        count = 0
        for group_id, outcome in islice(steps, GROUPS_PER_TURN):
            count += 1
            self._carry_out(served, outcome)
            served.shard.update_deadline(group_id)
        self._arm(served.shard.next_deadline())
        if count == GROUPS_PER_TURN:
            self._loop.call_soon(self._walk, served, steps)
