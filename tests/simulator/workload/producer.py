"""Idempotent producers: sequences, retries in order, and a new epoch when one has to be given up (KIP-98, KIP-360)."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from protocol.messages.produce import PartitionProduceResponse
from protocol.records.builder import NewRecord, build_batch
from tests.simulator.client import Client, Connection
from tests.simulator.oracle import Oracle
from tests.simulator.workload.batches import (
    Batch,
    acknowledged_by_all,
    compression_of,
    make_records,
    pause_s,
    produce,
)
from tests.simulator.workload.plan import ProducerPlan
from tests.simulator.workload.retry import RETRIABLE, RETRY_S

INIT_PRODUCER_ID_VERSION = 4
MAX_IN_FLIGHT = 5
#: How often the leader is asked for anew while batches are under way: those behind them may go to another node then.
HASTY_SHARE = 0.3


class Producer:
    """Idempotent, acks=all, several batches in flight on one partition; retries keep their sequences.

    Batches are acknowledged in order. A retry begins with the oldest batch that is not acknowledged. A batch that gets
    too old is given up: nobody knows what became of it, and what comes after it begins anew under another epoch or id.
    While some are under way, those behind them may go to another node, if that leads by then. An acknowledgement counts
    for all batches before, as with librdkafka (broker/replication/sequence_gaps.py).
    """

    def __init__(self, client: Client, oracle: Oracle, name: str, plan: ProducerPlan) -> None:
        self._client = client
        self._oracle = oracle
        self._name = name
        self._plan = plan
        self._rng = random.Random(plan.seed)
        self._made = 0
        self._next_sequence = 0
        self._pending: list[Batch] = []
        self._producer_id = -1
        self._epoch = 0
        #: The last attempt brought an error.
        self._has_failed = False
        self.last_error = "none yet"

    def describe(self) -> str:
        return f"{self._name}, id {self._producer_id}, {len(self._pending)} pending: {self.last_error}"

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        while self._made < self._plan.batches or self._pending:
            if self._pending and loop.time() - self._pending[0].made_s > self._plan.delivery_timeout_s:
                self._give_up(loop.time())
            if self._producer_id < 0:
                await self._init()
            wanted = self._rng.randint(1, MAX_IN_FLIGHT)
            while self._made < self._plan.batches and len(self._pending) < wanted:
                self._add(make_records(self._rng, self._plan.topic, self._name, self._made))
                self._made += 1
            try:
                await self._send()
            except (OSError, TimeoutError) as error:
                self._failed(repr(error))
            if self._has_failed:
                self._has_failed = False
                await asyncio.sleep(self._plan.retry_s)
            await asyncio.sleep(pause_s(self._rng, self._plan.mean_pause_s))

    async def _init(self) -> None:
        body = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
        while self._producer_id < 0:
            try:
                connection = await self._client.any_broker()
                answer = await connection.request(
                    ApiKey.INIT_PRODUCER_ID, INIT_PRODUCER_ID_VERSION, body, InitProducerIdResponse
                )
                self.last_error = f"init {answer.error_code}"
                if answer.error_code == ErrorCode.NONE:
                    self._begin(answer.producer_id, answer.producer_epoch)
                    return
                assert answer.error_code in RETRIABLE, ErrorCode(answer.error_code)
            except (OSError, TimeoutError) as error:
                self.last_error = repr(error)
            await asyncio.sleep(RETRY_S)

    def _begin(self, producer_id: int, epoch: int) -> None:
        """What is pending is numbered anew: as batches of another epoch they are other batches."""
        self._producer_id, self._epoch = producer_id, epoch
        self._next_sequence = 0
        pending, self._pending = self._pending, []
        for batch in pending:
            self._add(batch.records, batch.made_s)

    def _add(self, records: Sequence[NewRecord], made_s: float | None = None) -> None:
        data = build_batch(
            records,
            compression=compression_of(records),
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            base_sequence=self._next_sequence,
        )
        batch = Batch(records, bytes(data), self._next_sequence)
        batch.made_s = batch.made_s if made_s is None else made_s
        self._pending.append(batch)
        self._next_sequence += batch.count

    def _give_up(self, now_s: float) -> None:
        """The outcome stays unknown; what is younger goes on (Java raises the epoch itself, librdkafka asks again)."""
        self._pending = [
            batch for batch in self._pending if now_s - batch.made_s <= self._plan.delivery_timeout_s
        ]
        self._begin_anew()

    def _begin_anew(self) -> None:
        if self._rng.random() < 0.5:
            self._begin(self._producer_id, self._epoch + 1)
        else:
            self._producer_id = -1

    def _failed(self, error: str) -> None:
        self.last_error = error
        self._has_failed = True
        self._client.forget(self._plan.topic.name, self._plan.partition)

    async def _send(self) -> None:
        if not self._pending:
            return
        sent, behind = list(self._pending), []
        if self._rng.random() < HASTY_SHARE:
            cut = self._rng.randrange(len(sent))
            sent, behind = sent[: cut + 1], sent[cut + 1 :]
        answers = self._begin_sending(await self._connection(), sent)
        if behind:
            self._client.forget(self._plan.topic.name, self._plan.partition)
            try:
                answers += self._begin_sending(await self._connection(), behind)
                sent += behind
            except (OSError, TimeoutError) as error:
                self._failed(repr(error))
        in_order, is_lost = True, False
        for batch, answer in zip(sent, await asyncio.gather(*answers, return_exceptions=True), strict=True):
            if isinstance(answer, (OSError, TimeoutError)):
                self._failed(repr(answer))
                in_order = False
                continue
            if isinstance(answer, BaseException):
                raise answer
            is_first_out_of_order = in_order and answer.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            is_lost = is_lost or is_first_out_of_order
            in_order = self._answered(batch, answer, in_order) and in_order
        if is_lost:
            self._begin_anew()

    async def _connection(self) -> Connection:
        """Of the leader. Raises OSError, TimeoutError."""
        leader = await self._client.leader(self._plan.topic.name, self._plan.partition)
        if leader is None:
            raise OSError("metadata: no leader")
        return await self._client.broker(leader.node_id)

    def _begin_sending(
        self, connection: Connection, batches: list[Batch]
    ) -> list[asyncio.Task[PartitionProduceResponse]]:
        topic, partition = self._plan.topic.name, self._plan.partition
        return [
            asyncio.ensure_future(produce(connection, self._oracle, topic, partition, -1, batch))
            for batch in batches
        ]

    def _answered(self, batch: Batch, answer: PartitionProduceResponse, in_order: bool) -> bool:
        """Whether this batch is acknowledged; `in_order`: all before it are."""
        code = ErrorCode(answer.error_code)
        if code is ErrorCode.NONE:
            before = self._pending[: self._pending.index(batch)]
            for other in before:
                self._oracle.acknowledged.told_by_a_later_one(other.digest)
            del self._pending[: len(before) + 1]
            topic, partition = self._plan.topic, self._plan.partition
            acknowledged_by_all(self._oracle, topic, partition, answer.base_offset, batch)
            if not self._plan.topic.is_recreated or batch.requests == 1:
                self._oracle.once.told(batch.digest, answer.base_offset)
            return True
        self._failed(code.name)
        if code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            # A topic that came new under the name knows nobody, and may have taken a later batch first; Java raises the
            # epoch after this error.
            assert not in_order or self._plan.topic.is_recreated, (
                f"{self._producer_id}/{batch.base_sequence}: all before it is acknowledged"
            )
        else:
            assert code in RETRIABLE, code
        return False
