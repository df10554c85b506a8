"""Readers that check every byte."""

from __future__ import annotations

import asyncio
from uuid import UUID

from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from protocol.records.batch import iter_batches
from storage.log_types import GroupKey
from tests.simulator.client import Client
from tests.simulator.oracle import Oracle
from tests.simulator.workload.retry import RETRIABLE, RETRY_S

FETCH_VERSION = 13
_FETCH_RETRIABLE = frozenset(
    {
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.FENCED_LEADER_EPOCH,
    }
)


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
