"""Deleting records, as Kafka Streams does with what it has read: again and again, up to any offset."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from storage.log_types import GroupKey
from tests.simulator.client import Client, Leader
from tests.simulator.oracle import Oracle
from tests.simulator.workload.offsets import EARLIEST, LATEST, list_offsets
from tests.simulator.workload.plan import TopicPlan
from tests.simulator.workload.retry import READ_RETRIABLE, RETRY_S

DELETE_RECORDS_VERSION = 2
#: Virtual seconds between one deletion and the next, on average.
MEAN_PAUSE_S = 0.4
TIMEOUTS_MS = (0, 100, 1000)
HIGH_WATERMARK = -1


async def delete_records(
    client: Client, topic: str, leader: Leader, offset: int, timeout_ms: int
) -> DeleteRecordsPartitionResult:
    """Raises OSError, TimeoutError."""
    connection = await client.broker(leader.node_id)
    wanted = DeleteRecordsPartition(partition_index=leader.key.partition, offset=offset)
    body = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=topic, partitions=[wanted])], timeout_ms=timeout_ms
    )
    answer = await connection.request(
        ApiKey.DELETE_RECORDS, DELETE_RECORDS_VERSION, body, DeleteRecordsResponse
    )
    return answer.topics[0].partitions[0]


class Purger:
    """Of one partition, for ever. Only of topics that stay: the request names a topic."""

    def __init__(
        self,
        client: Client,
        oracle: Oracle,
        topic: TopicPlan,
        partition: int,
        newest_term: Callable[[GroupKey], int],
        seed: int,
    ) -> None:
        """`newest_term`: that any node knows of now. An answer does not say under which term it was given."""
        self._client = client
        self._oracle = oracle
        self._topic = topic.name
        self._partition = partition
        self._newest_term = newest_term
        self._rng = random.Random(seed)

    async def run(self) -> None:
        while True:
            try:
                await self._purge()
            except (OSError, TimeoutError):
                self._client.forget(self._topic, self._partition)
            await asyncio.sleep(RETRY_S + self._rng.expovariate(1 / MEAN_PAUSE_S))

    async def _purge(self) -> None:
        leader = await self._client.leader(self._topic, self._partition)
        if leader is None:
            return
        end = await list_offsets(self._client, self._topic, leader, LATEST)
        start = await list_offsets(self._client, self._topic, leader, EARLIEST)
        for answer in (end, start):
            if answer.error_code != ErrorCode.NONE:
                self._refused(answer.error_code)
                return
        offset = self._choose(start.offset, end.offset)
        oracle, key = self._oracle, leader.key
        floor, promised = oracle.watermarks.floor(key), oracle.latest.floor(key)
        oracle.deletions.asked(key, offset)
        deleted = await delete_records(
            self._client, self._topic, leader, offset, self._rng.choice(TIMEOUTS_MS)
        )
        if deleted.error_code == ErrorCode.NONE:
            least = promised if offset == HIGH_WATERMARK else offset
            assert deleted.low_watermark >= least, f"{key}: asked for {least}, got {deleted.low_watermark}"
            term = self._newest_term(key)
            oracle.watermarks.shown(key, term, floor, log_start=deleted.low_watermark)
        elif deleted.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            assert offset > promised, (
                f"{key}: {offset} is out of range, acknowledged was all below {promised}"
            )
        else:
            self._refused(deleted.error_code)

    def _choose(self, start: int, end: int) -> int:
        """Mostly what has come since, sometimes what is deleted already, or is not there yet."""
        chance = self._rng.random()
        if chance < 0.2:
            return HIGH_WATERMARK
        if chance < 0.3:
            return end + self._rng.randint(1, 3)
        return self._rng.randint(max(0, start - 2), max(start, end))

    def _refused(self, code: int) -> None:
        assert code in READ_RETRIABLE, ErrorCode(code)
        self._client.forget(self._topic, self._partition)
