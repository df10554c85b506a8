"""Readers that want to know the last value of each key: they read a compacted partition from its start to its end, as
an application does that fills a table when it starts."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from broker.replication.replica import Replica
from protocol.errors import ErrorCode
from protocol.records.batch import BatchHeader
from storage.log_types import GroupKey
from tests.simulator.client import Client, Leader
from tests.simulator.invariants.same_view import check_view
from tests.simulator.invariants.watermarks_monotone import Watermarks
from tests.simulator.oracle import Oracle
from tests.simulator.workload.fetching import READ_COMMITTED, fetch
from tests.simulator.workload.offsets import EARLIEST, list_offsets
from tests.simulator.workload.plan import TopicPlan
from tests.simulator.workload.reader import Position, Reader
from tests.simulator.written import Record, records_of

#: Virtual seconds between one reading and the next.
PAUSE_S = 0.4
MAX_BYTES = 1 << 20


class View(NamedTuple):
    """What was found between the start of a partition and its end."""

    key: GroupKey
    end_offset: int
    #: Each with the base offset of its batch. To who reads what is not committed, also those of aborted transactions.
    records: list[tuple[int, Record]]
    #: A tombstone may have gone between a value that it deletes and its own place.
    is_slow: bool


class ViewReader(Reader):
    """Begins anew for ever. Who is not at the end before a tombstone of the time when he began may go, may have read a
    value and miss its deletion (`delete.retention.ms`). With a quota everybody is that slow."""

    def __init__(
        self, client: Client, oracle: Oracle, topic: TopicPlan, partition: int, isolation: int
    ) -> None:
        super().__init__(client, oracle, topic, partition, isolation)
        self._limit_s = topic.delete_retention_s / 2
        self._found: list[tuple[int, Record]] = []
        self.view: View | None = None

    @property
    def partition(self) -> tuple[str, int]:
        return self._topic.name, self._partition

    async def _step(self) -> None:
        leader = await self._leader()
        if leader is not None:
            await self._read(leader)
            await asyncio.sleep(PAUSE_S)

    async def _read(self, leader: Leader) -> None:
        """All of it, from one leader."""
        began_s = asyncio.get_running_loop().time()
        answer = await list_offsets(self._client, self._topic.name, leader, EARLIEST)
        if answer.error_code != ErrorCode.NONE:
            self._refused(answer.error_code)
            return
        position, end_offset = Position(offset=answer.offset), -1
        self._found = []
        while position.offset < end_offset or end_offset < 0:
            data = await fetch(
                self._client, leader, position.offset, max_bytes=MAX_BYTES, isolation=self._isolation
            )
            if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                return  # somebody deletes, or this is not the newest leader
            if data.error_code != ErrorCode.NONE:
                self._refused(data.error_code)
                return
            if self._oracle.may_be_corrupt(leader.node_id, leader.key):
                return
            if data.records:
                self._check(leader.key, data, position, Watermarks(data.log_start_offset, 0))
            is_committed = self._isolation == READ_COMMITTED
            end_offset = data.last_stable_offset if is_committed else data.high_watermark
        is_slow = asyncio.get_running_loop().time() > began_s + self._limit_s
        known = self.view
        if known is None or not is_slow or known.key != leader.key or known.end_offset < position.offset:
            self.view = View(leader.key, position.offset, self._found, is_slow)

    def _given(self, header: BatchHeader, batch: memoryview) -> None:
        self._found += [(header.base_offset, record) for record in records_of(batch)]

    def has_view_of(self, leader: Replica) -> bool:
        """Of everything that is committed, once nobody writes any more."""
        view = self.view
        return view is not None and view.key == leader.key and view.end_offset >= leader.high_watermark

    def check_view(self, leader: Replica) -> None:
        view, written = self.view, self._oracle.compaction.written(leader.key)
        assert view is not None
        counting = [
            record
            for base_offset, record in view.records
            if (original := written.at(base_offset)) is not None and original.is_committed
        ]
        whose = f"a reader with isolation {self._isolation}"
        start = leader.log.start_offset
        check_view(leader.key, written, counting, start, whose, misses_tombstones=view.is_slow)
