"""The transaction coordinator: the runtime over the shards of transactional ids, and the markers that end transactions.

    request -> the shard decides -> the record is committed -> answer
    end     -> Prepare is committed -> markers to the leaders of all partitions -> answer -> Complete is written

The end of a transaction is answered when all its markers are committed. Clients that are answered earlier meet
CONCURRENT_TRANSACTIONS with their next transaction, and sleep.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import TypeAlias

import structlog

from broker.config.layers import LiveSettings
from broker.controller.client import ControllerClient
from broker.controller.producer_ids import ProducerIds
from broker.coordinator.internal_topic import InternalTopic
from broker.coordinator.led_partition import LedPartition
from broker.coordinator.memory import CoordinatorMemory
from broker.coordinator.outcome import Outcome
from broker.coordinator.reading import Reading
from broker.coordinator.refusals import log_refusals
from broker.coordinator.runtime import CoordinatorRuntime
from broker.coordinator.ticket import Ticket
from broker.environment import Clock
from broker.metadata.image import MetadataImage
from broker.replication.events import ReplicaEvents
from broker.replication.reads import Reads
from broker.replication.replica import Replica
from broker.scheduling.background import Background, Steps
from broker.scheduling.ticks import Ticks
from broker.transactions.markers import RETRY_S, EndedTransaction, MarkerSender
from broker.transactions.metadata import (
    EPOCH_BUMP_VERSION,
    ProducerIdAndEpoch,
    TopicPartition,
    TransactionMetadata,
)
from broker.transactions.records import TRANSACTION_RECORDS, TransactionRecord
from broker.transactions.requests import (
    AddPartitions,
    EndTransaction,
    InitProducer,
    TransactionAnswer,
    TransactionRequest,
    refusal,
)
from broker.transactions.shard import BegunBy, TransactionShard
from broker.transactions.transaction_topic import check_transactional_id
from protocol.controller.transactions import JoinedResult, JoinTransaction, TransactionalPartition
from protocol.errors import ErrorCode, KafkaError
from storage.log_types import GroupKey

logger = structlog.get_logger()

#: Errors after which a client sends its request again, to whoever coordinates the transactional id then.
_ASKED_AGAIN = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.CONCURRENT_TRANSACTIONS,
)

Reply: TypeAlias = Callable[[TransactionAnswer], None]
_Runtime: TypeAlias = CoordinatorRuntime[TransactionShard, TransactionRecord]
_Led: TypeAlias = LedPartition[TransactionShard]


class TransactionCoordinator:
    """The transactional ids whose partitions of `__transaction_state` this node leads."""

    def __init__(
        self,
        topic: InternalTopic,
        settings: LiveSettings,
        producer_ids: ProducerIds,
        markers: MarkerSender,
        controller: ControllerClient,
        image: MetadataImage,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        background: Background,
        reads: Reads,
        events: ReplicaEvents,
        ticks: Ticks,
    ) -> None:
        self.topic = topic
        self._settings = settings
        self._producer_ids = producer_ids
        self._markers = markers
        self._controller = controller
        self._image = image
        #: Of shards that were loaded by an image that may be behind: the transactions whose markers wait for it.
        self._held: dict[TransactionShard, list[EndedTransaction]] = {}
        self._clock = clock
        self._loop = loop
        self._background = background
        self._reads = reads
        self._is_expiring = False
        self._memory = CoordinatorMemory(
            settings.config.max_transaction_bytes,
            lambda: sum(led.shard.size_bytes for led in self._runtime.loaded_partitions()),
        )
        #: Tickets that are not answered yet, about which a record was decided.
        self._recorded: set[Ticket[TransactionAnswer] | None] = set()
        #: Outlives the shards: a late EndTxn may come when this node has lost the leadership and has it again.
        self._begun_by: dict[str, BegunBy] = {}
        self._runtime: _Runtime = CoordinatorRuntime(
            topic, TRANSACTION_RECORDS, self._new_shard, clock, loop, background, reads, events
        )
        self._runtime.on_loaded.append(_log_loaded)
        log_refusals(self._memory, "varve.max.transaction.bytes", ticks)
        ticks.every(settings.config.transactional_id_check_interval_ms / 1000, self._expire_ids)

    def close(self) -> None:
        self._runtime.close()

    def loaded_shards(self) -> list[TransactionShard]:
        return [led.shard for led in self._runtime.loaded_partitions()]

    def _new_shard(self, replica: Replica) -> TransactionShard:
        shard = TransactionShard(self._prepared, self._memory, self._begun_by)
        self._held[shard] = []
        self._loop.call_soon(self._catch_up, shard)
        return shard

    # -- requests ----------------------------------------------------------------------------------------

    def init_producer(
        self, transactional_id: str, expected: ProducerIdAndEpoch | None, timeout_ms: int, reply: Reply
    ) -> None:
        """A producer takes a transactional id over. `expected`: as `InitProducer`."""
        try:
            check_transactional_id(transactional_id)
        except KafkaError as error:
            reply(refusal(error.code))
            return
        if not 0 < timeout_ms <= self._settings.config.transaction_max_timeout_ms:
            reply(refusal(ErrorCode.INVALID_TRANSACTION_TIMEOUT))
            return

        def have_id(error: ErrorCode, new_producer_id: int) -> None:
            if error != ErrorCode.NONE:
                reply(refusal(error))
            else:
                self.ask(InitProducer(transactional_id, expected, timeout_ms, new_producer_id), reply)

        # Mostly it is not used. There are 2**63 of them.
        self._producer_ids.next_id(have_id)

    def ask(self, request: TransactionRequest, reply: Reply) -> None:
        """An answer that rests on no record of its own waits for a liveness round. A coordinator that does not know its
        successor would end a producer which the successor serves, or would acknowledge the end of another transaction
        than the producer means. Decisions with a record are committed first."""
        asked: Ticket[TransactionAnswer] | None = None

        def decide(
            shard: TransactionShard, ticket: Ticket[TransactionAnswer], now: float, now_ms: int
        ) -> Outcome[TransactionRecord]:
            nonlocal asked
            asked = ticket
            return self._decide(request, shard, ticket, now, now_ms)

        def answered(answer: TransactionAnswer) -> None:
            if asked in self._recorded or answer.error in _ASKED_AGAIN:
                self._recorded.discard(asked)
                reply(answer)
            else:
                self._reply_when_confirmed(request.transactional_id, answer, reply)

        self._runtime.ask(request.transactional_id, answered, refusal, decide)

    def _reply_when_confirmed(self, transactional_id: str, answer: TransactionAnswer, reply: Reply) -> None:
        """NOT_COORDINATOR if this node may not have led the partition when it decided."""
        try:
            replica = self._runtime.replica_of(transactional_id)
        except KafkaError as error:
            reply(refusal(error.code))
            return
        epoch = replica.leader_epoch

        def confirmed(keys: set[GroupKey]) -> None:
            is_confirmed = replica.key in keys and replica.leader_epoch == epoch
            reply(answer if is_confirmed else refusal(ErrorCode.NOT_COORDINATOR))

        self._reads.confirm([replica], confirmed)

    def _decide(
        self,
        request: TransactionRequest,
        shard: TransactionShard,
        ticket: Ticket[TransactionAnswer],
        now: float,
        now_ms: int,
    ) -> Outcome[TransactionRecord]:
        if isinstance(request, EndTransaction) and request.client_version >= EPOCH_BUMP_VERSION:
            metadata = shard.get(request.transactional_id)
            if metadata is not None and metadata.producer.is_exhausted:
                request = replace(request, new_producer_id=self._producer_ids.take())
        outcome = shard.decide(ticket, request, now, now_ms)
        if outcome.records:
            self._recorded.add(ticket)
        return outcome

    def join(self, request: JoinTransaction, reply: Callable[[JoinedResult | KafkaError, int], None]) -> None:
        """The leader of partitions asks whether records of the transaction may be appended there. As
        `broker.controller.server.Execute`. NOT_COORDINATOR if this node's image has another topic of that name, or
        none: the marker would go astray. Then this node is behind, or the leader is, and the client tries again."""
        if not all(map(self._knows_topic, request.partitions)):
            reply(KafkaError(ErrorCode.NOT_COORDINATOR, "the topic is another one"), 0)
            return
        producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
        partitions = [TopicPartition(each.topic, each.partition) for each in request.partitions]
        if request.is_added:
            # The producer's epoch rises with each end of a transaction. So a coordinator that is not the leader any
            # more cannot let records of an ended transaction in.
            def added(answer: TransactionAnswer) -> None:
                reply(_joined([answer.error] * len(partitions)), 0)

            addition = AddPartitions(
                request.transactional_id, producer, partitions, EPOCH_BUMP_VERSION, may_wait=False
            )
            self.ask(addition, added)
            return

        def failed(error: ErrorCode) -> JoinedResult:
            return _joined([error] * len(partitions))

        def verify(
            shard: TransactionShard, ticket: Ticket[JoinedResult], now: float, now_ms: int
        ) -> Outcome[TransactionRecord]:
            led = self._runtime.partition_of(shard)
            assert led is not None, "a shard that decides is not discarded"
            errors = shard.verify(request.transactional_id, producer, partitions)
            return Outcome[TransactionRecord]().add_answer(ticket, _joined(errors, led.epoch))

        def confirmed(result: JoinedResult) -> None:
            reply(_joined(result.error_codes), 0)

        def verified(result: JoinedResult) -> None:
            if any(result.error_codes):
                self._runtime.ask_confirmed(request.transactional_id, confirmed, failed, verify)
            else:
                reply(result, 0)

        if request.is_confirmed:
            self._runtime.ask_confirmed(request.transactional_id, confirmed, failed, verify)
        else:
            self._runtime.ask(request.transactional_id, verified, failed, verify)

    def _knows_topic(self, partition: TransactionalPartition) -> bool:
        topic = self._image.topic_named(partition.topic)
        if topic is None or topic.topic_id != partition.topic_id:
            return False
        return partition.partition < len(topic.partitions)

    def reading(self) -> Reading[TransactionShard]:
        """For a request that looks at transactional ids."""
        return self._runtime.reading()

    # -- the end of a transaction ------------------------------------------------------------------------

    def _prepared(self, shard: TransactionShard, metadata: TransactionMetadata) -> None:
        """The end of a transaction is decided, and committed."""
        led = self._runtime.partition_of(shard)
        if led is None:
            return  # discarded meanwhile: whoever loads the partition sends the markers
        ended = EndedTransaction(
            metadata,
            led.epoch,
            is_wanted=partial(self._runtime.is_active, led),
            done=partial(self._markers_committed, led, metadata),
            missing=set(metadata.partitions),
        )
        if shard in self._held:
            self._held[shard].append(ended)
        else:
            self._markers.send(ended)

    def _catch_up(self, shard: TransactionShard) -> None:
        """Have this node's image show what its predecessor knew when it consented (`join`). Until then, markers of this
        shard could go to older topics of the same names."""
        self._controller.catch_up(partial(self._image_looked_at, shard))

    def _image_looked_at(self, shard: TransactionShard, has_caught_up: bool) -> None:
        led = self._runtime.partition_of(shard)
        if led is None or not self._runtime.is_active(led):
            del self._held[shard]
        elif has_caught_up:
            self._background.run(self._send_all(self._held.pop(shard)))
        else:
            self._loop.call_later(RETRY_S, self._catch_up, shard)

    def _send_all(self, transactions: list[EndedTransaction]) -> Steps:
        for ended in transactions:
            self._markers.send(ended)
            yield

    def _markers_committed(self, led: _Led, metadata: TransactionMetadata) -> None:
        transactional_id = metadata.transactional_id
        self._runtime.act(led, transactional_id, partial(self._complete, led, transactional_id))

    def _complete(self, led: _Led, transactional_id: str) -> None:
        completion = led.shard.complete(transactional_id, self._loop.time(), self._clock.now_ms())
        self._runtime.note_deadline(led, transactional_id)
        for ticket in completion.ended_by:
            led.open.pop(ticket, None)
            ticket.answer(completion.answer)
        for ticket, request in completion.waiting:
            self._runtime.ask_again(led, transactional_id, ticket, partial(self._decide, request))

    # -- expiry ------------------------------------------------------------------------------------------

    def _expire_ids(self, now: float) -> None:
        if not self._is_expiring:
            self._is_expiring = True
            self._background.run(self._expire_all_ids())

    def _expire_all_ids(self) -> Steps:
        expiration_ms = self._settings.config.transactional_id_expiration_ms
        for led in self._runtime.loaded_partitions():
            expire = partial(led.shard.expire_id, expiration_ms, self._clock.now_ms())
            yield from self._runtime.carry_out(led, led.shard.ids(), expire)
        self._is_expiring = False


def _joined(errors: Iterable[int], unconfirmed_epoch: int = -1) -> JoinedResult:
    return JoinedResult(error_codes=[int(error) for error in errors], unconfirmed_epoch=unconfirmed_epoch)


def _log_loaded(led: _Led) -> None:
    if len(led.shard):
        logger.info("transactional ids are loaded", partition=led.replica.partition, count=len(led.shard))
