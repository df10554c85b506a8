"""What clients do in the simulation: idempotent producers that never give up, and readers that check every byte."""

from __future__ import annotations

import asyncio
import random
from uuid import UUID

from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from protocol.records.batch import iter_batches
from protocol.records.builder import NewRecord, build_batch
from storage.log_types import GroupKey
from tests.simulator.client import Client
from tests.simulator.invariants.acknowledged_never_lost import Acknowledged
from tests.simulator.oracle import Oracle

PRODUCE_VERSION = 11
FETCH_VERSION = 13
CREATE_TOPICS_VERSION = 5
INIT_PRODUCER_ID_VERSION = 4
RETRY_S = 0.05
#: Errors after which a producer asks for the leader again and sends the same batch again.
RETRIABLE = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.INVALID_REPLICATION_FACTOR,
    }
)


async def create_topic(client: Client, name: str, partitions: int) -> None:
    """Until it is there: answers get lost, and then it exists already."""
    body = CreateTopicsRequest(
        topics=[CreatableTopic(name=name, num_partitions=partitions, replication_factor=3)],
        timeout_ms=1000,
    )
    while True:
        try:
            connection = await client.any_broker()
            answer = await connection.request(
                ApiKey.CREATE_TOPICS, CREATE_TOPICS_VERSION, body, CreateTopicsResponse
            )
            code = answer.topics[0].error_code
            if code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                return
            assert code in RETRIABLE, ErrorCode(code)
        except (OSError, TimeoutError):
            pass
        await asyncio.sleep(RETRY_S)


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


class Reader:
    """Reads a partition from its start, again and again, and compares with what was ever committed there."""

    def __init__(self, client: Client, oracle: Oracle, topic: str, partition: int) -> None:
        self._client = client
        self._oracle = oracle
        self._topic = topic
        self._partition = partition
        self.batches_read = 0

    async def run(self) -> None:
        offset = 0
        while True:
            try:
                reached = await self._fetch(offset)
                offset = 0 if reached is None else reached
            except (OSError, TimeoutError):
                pass
            await asyncio.sleep(RETRY_S)

    async def _fetch(self, offset: int) -> int | None:
        """The offset to read on at; None: at the end, begin again."""
        topic = await self._client.metadata(self._topic)
        leaders = [x for x in topic.partitions if x.partition_index == self._partition and x.leader_id >= 0]
        if not leaders:
            return offset
        connection = await self._client.broker(leaders[0].leader_id)
        wanted = FetchPartition(partition=self._partition, fetch_offset=offset, partition_max_bytes=8192)
        body = FetchRequest(
            max_wait_ms=100,
            min_bytes=1,
            topics=[FetchTopic(topic_id=topic.topic_id, partitions=[wanted])],
        )
        answer = await connection.request(ApiKey.FETCH, FETCH_VERSION, body, FetchResponse)
        if not answer.responses:
            return offset
        part = answer.responses[0].partitions[0]
        if part.error_code != ErrorCode.NONE:
            code = ErrorCode(part.error_code)
            assert code in RETRIABLE or code in _FETCH_RETRIABLE, code
            return offset
        if not part.records:
            return None
        return self._check(topic.topic_id, part.records, offset, part.high_watermark)

    def _check(self, topic_id: UUID, records: object, offset: int, high_watermark: int) -> int:
        assert isinstance(records, memoryview)
        key = GroupKey(topic_id, self._partition)
        for position, header in iter_batches(records):
            assert header.last_offset < high_watermark, "clients see what is committed"
            assert header.base_offset <= offset, f"a hole: asked for {offset}, got {header.base_offset}"
            self._oracle.read(key, header, records[position : position + header.size_bytes])
            offset = header.next_offset
            self.batches_read += 1
        return offset


_FETCH_RETRIABLE = frozenset(
    {
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.FENCED_LEADER_EPOCH,
    }
)
