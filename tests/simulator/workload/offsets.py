"""Asking where a partition begins and ends, and where an epoch ended."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.simulator.client import Client, Leader
from tests.simulator.oracle import Oracle
from tests.simulator.workload.plan import TopicPlan
from tests.simulator.workload.retry import READ_RETRIABLE, RETRY_S

LIST_OFFSETS_VERSION = 7
OFFSET_FOR_LEADER_EPOCH_VERSION = 4
LATEST = -1
EARLIEST = -2
#: Virtual seconds between one question and the next, on average.
MEAN_PAUSE_S = 0.25
_CONSUMER = -1


async def list_offsets(
    client: Client, topic: str, leader: Leader, timestamp: int
) -> ListOffsetsPartitionResponse:
    """Raises OSError, TimeoutError."""
    connection = await client.broker(leader.node_id)
    wanted = ListOffsetsPartition(
        partition_index=leader.key.partition, current_leader_epoch=leader.epoch, timestamp=timestamp
    )
    body = ListOffsetsRequest(topics=[ListOffsetsTopic(name=topic, partitions=[wanted])])
    answer = await connection.request(ApiKey.LIST_OFFSETS, LIST_OFFSETS_VERSION, body, ListOffsetsResponse)
    return answer.topics[0].partitions[0]


async def epoch_end(client: Client, topic: str, leader: Leader, epoch: int) -> EpochEndOffset:
    """Where this leader has an epoch end. Raises OSError, TimeoutError."""
    connection = await client.broker(leader.node_id)
    wanted = OffsetForLeaderPartition(
        partition=leader.key.partition, current_leader_epoch=leader.epoch, leader_epoch=epoch
    )
    body = OffsetForLeaderEpochRequest(
        replica_id=_CONSUMER, topics=[OffsetForLeaderTopic(topic=topic, partitions=[wanted])]
    )
    answer = await connection.request(
        ApiKey.OFFSET_FOR_LEADER_EPOCH, OFFSET_FOR_LEADER_EPOCH_VERSION, body, OffsetForLeaderEpochResponse
    )
    return answer.topics[0].partitions[0]


async def ask_where(client: Client, oracle: Oracle, topic: str, leader: Leader, timestamp: int) -> ErrorCode:
    """Of a topic that stays: where a partition ends (LATEST) or begins (EARLIEST), says one who may lead it. Raises
    OSError, TimeoutError."""
    key = leader.key
    # The answer waits for a liveness round, so it knows of everything that was before, under whatever epoch.
    floor, promised = oracle.watermarks.floor(key), oracle.latest.floor(key)
    answer = await list_offsets(client, topic, leader, timestamp)
    code = ErrorCode(answer.error_code)
    if code is not ErrorCode.NONE:
        assert code in READ_RETRIABLE, code
    elif timestamp == LATEST:
        assert answer.leader_epoch == leader.epoch, "fenced by the epoch that was asked with"
        oracle.latest.answered(key, promised, answer.offset)
        oracle.watermarks.shown(key, leader.epoch, floor, high_watermark=answer.offset)
    else:
        oracle.watermarks.shown(key, leader.epoch, floor, log_start=answer.offset)
    return code


class Lister:
    """Asks for the ends of partitions, one question after the other, for ever. Only of topics that stay: the request
    names a topic, so of one that is re-created nobody knows which the answer is about."""

    def __init__(self, client: Client, oracle: Oracle, topics: Sequence[TopicPlan], seed: int) -> None:
        self._client = client
        self._oracle = oracle
        self._partitions = [
            (topic.name, number)
            for topic in topics
            if not topic.is_recreated
            for number in range(topic.partitions)
        ]
        self._rng = random.Random(seed)

    async def run(self) -> None:
        while True:
            topic, partition = self._rng.choice(self._partitions)
            try:
                await self._ask(topic, partition)
            except (OSError, TimeoutError):
                self._client.forget(topic, partition)
            await asyncio.sleep(RETRY_S + self._rng.expovariate(1 / MEAN_PAUSE_S))

    async def _ask(self, topic: str, partition: int) -> None:
        leader = await self._client.leader(topic, partition)
        if leader is None:
            return
        timestamp = self._rng.choice((LATEST, EARLIEST))
        if await ask_where(self._client, self._oracle, topic, leader, timestamp) is not ErrorCode.NONE:
            self._client.forget(topic, partition)
