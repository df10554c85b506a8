"""Idempotent producers that never give up."""

from __future__ import annotations

import asyncio
import random

from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from protocol.records.builder import NewRecord, build_batch
from storage.log_types import GroupKey
from tests.simulator.client import Client
from tests.simulator.invariants.acknowledged_never_lost import Acknowledged
from tests.simulator.oracle import Oracle
from tests.simulator.workload.retry import RETRIABLE, RETRY_S

PRODUCE_VERSION = 11
INIT_PRODUCER_ID_VERSION = 4


class _Batch:
    def __init__(self, base_sequence: int, count: int, data: bytes) -> None:
        self.base_sequence = base_sequence
        self.count = count
        self.data = data


class Producer:
    """Idempotent, acks=all, several batches in flight on one partition; retries keep their sequences.

    Batches are acknowledged in order. A retry begins with the oldest batch that is not acknowledged.
    """

    def __init__(
        self, client: Client, oracle: Oracle, rng: random.Random, topic: str, partition: int, batches: int
    ) -> None:
        self._client = client
        self._oracle = oracle
        self._rng = rng
        self._topic = topic
        self._partition = partition
        self._left = batches
        self._next_sequence = 0
        self._pending: list[_Batch] = []
        self._key: GroupKey | None = None
        self.producer_id = -1
        self.last_error = "none yet"

    async def run(self) -> None:
        await self._init()
        while self._left or self._pending:
            while self._left and len(self._pending) < self._rng.randint(1, 5):
                self._make()
            try:
                await self._send()
            except (OSError, TimeoutError) as error:
                self.last_error = repr(error)
                await asyncio.sleep(RETRY_S)
            await asyncio.sleep(self._rng.expovariate(1 / 0.02))

    async def _init(self) -> None:
        body = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
        while self.producer_id < 0:
            try:
                connection = await self._client.any_broker()
                answer = await connection.request(
                    ApiKey.INIT_PRODUCER_ID, INIT_PRODUCER_ID_VERSION, body, InitProducerIdResponse
                )
                self.last_error = f"init {answer.error_code}"
                if answer.error_code == ErrorCode.NONE:
                    self.producer_id = answer.producer_id
                    return
                assert answer.error_code in RETRIABLE, ErrorCode(answer.error_code)
            except (OSError, TimeoutError) as error:
                self.last_error = repr(error)
            await asyncio.sleep(RETRY_S)

    def _make(self) -> None:
        count = self._rng.randint(1, 4)
        records = [
            NewRecord(
                b"%d" % (self._next_sequence + number), self._rng.randbytes(self._rng.randrange(300)), 1
            )
            for number in range(count)
        ]
        data = build_batch(
            records, producer_id=self.producer_id, producer_epoch=0, base_sequence=self._next_sequence
        )
        self._pending.append(_Batch(self._next_sequence, count, bytes(data)))
        self._next_sequence += count
        self._left -= 1

    async def _leader(self) -> int | None:
        topic = await self._client.metadata(self._topic)
        for partition in topic.partitions:
            if partition.partition_index == self._partition and partition.leader_id >= 0:
                key = GroupKey(topic.topic_id, self._partition)
                assert self._key in (None, key), "the topic was created once"
                self._key = key
                return partition.leader_id
        self.last_error = f"metadata: {topic.error_code}, no leader"
        return None

    async def _send(self) -> None:
        leader = await self._leader()
        if leader is None:
            await asyncio.sleep(RETRY_S)
            return
        connection = await self._client.broker(leader)
        requests = [
            asyncio.ensure_future(
                connection.request(ApiKey.PRODUCE, PRODUCE_VERSION, self._request(batch), ProduceResponse)
            )
            for batch in self._pending
        ]
        answers = await asyncio.gather(*requests, return_exceptions=True)
        in_order = True
        for batch, answer in zip(list(self._pending), answers, strict=True):
            if isinstance(answer, (OSError, TimeoutError)):
                self.last_error = repr(answer)
                in_order = False
                continue
            assert isinstance(answer, ProduceResponse), answer
            in_order = self._answered(batch, answer.responses[0].partition_responses[0], in_order)

    def _request(self, batch: _Batch) -> ProduceRequest:
        partition = PartitionProduceData(index=self._partition, records=memoryview(batch.data))
        return ProduceRequest(
            acks=-1,
            timeout_ms=1000,
            topic_data=[TopicProduceData(name=self._topic, partition_data=[partition])],
        )

    def _answered(self, batch: _Batch, answer: PartitionProduceResponse, in_order: bool) -> bool:
        """Whether this batch and all before it are acknowledged."""
        code = ErrorCode(answer.error_code)
        if code is ErrorCode.NONE:
            assert self._key is not None
            self._pending.remove(batch)
            self._oracle.acknowledged.acknowledged(
                self._key,
                answer.base_offset,
                Acknowledged(self.producer_id, batch.base_sequence, answer.base_offset + batch.count - 1),
            )
            return in_order
        self.last_error = code.name
        if code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            assert not in_order, f"{self.producer_id}/{batch.base_sequence}: all before it is acknowledged"
        else:
            assert code in RETRIABLE, code
        return False
