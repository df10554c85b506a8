"""Readers that check every byte: consumers that follow a partition, and ones that begin it again and again."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from protocol.errors import ErrorCode
from protocol.messages.fetch import PartitionData
from protocol.records.batch import BatchHeader, iter_batches
from storage.log_types import GroupKey
from tests.simulator.client import Client, Leader
from tests.simulator.invariants.everything_is_read import check_all_seen
from tests.simulator.invariants.no_deleted_record_back import check_served
from tests.simulator.invariants.positions_stay_valid import check_position
from tests.simulator.invariants.watermarks_monotone import Watermarks
from tests.simulator.oracle import Oracle
from tests.simulator.workload.fetching import READ_COMMITTED, READ_UNCOMMITTED, Fetch, InSession, fetch
from tests.simulator.workload.offsets import EARLIEST, epoch_end, list_offsets
from tests.simulator.workload.plan import TopicPlan
from tests.simulator.workload.retry import READ_RETRIABLE, RETRY_S

#: Virtual seconds that a rereader rests at the end.
REREAD_PAUSE_S = 0.5


@dataclass
class Position:
    """Where a reader is in a partition."""

    offset: int = 0
    #: Of the last batch that was read; -1: none yet.
    epoch: int = -1
    #: The leader epoch under which the position was last found valid.
    valid_under: int = -1
    #: Base offsets of all batches that were read.
    seen: set[int] = field(default_factory=set)


class Reader:
    """What all kinds have in common."""

    def __init__(
        self, client: Client, oracle: Oracle, topic: TopicPlan, partition: int, isolation: int
    ) -> None:
        self._isolation = isolation
        self._client = client
        self._oracle = oracle
        self._topic = topic
        self._partition = partition
        self.batches_read = 0

    async def run(self) -> None:
        while True:
            try:
                await self._step()
            except (OSError, TimeoutError):
                self._client.forget(self._topic.name, self._partition)
            await asyncio.sleep(RETRY_S)

    async def _step(self) -> None:
        raise NotImplementedError

    async def _leader(self) -> Leader | None:
        return await self._client.leader(self._topic.name, self._partition)

    def _refused(self, code: int) -> None:
        assert code in READ_RETRIABLE, ErrorCode(code)
        self._client.forget(self._topic.name, self._partition)

    def _check(self, key: GroupKey, data: PartitionData, position: Position, floor: Watermarks) -> None:
        """Whole batches from the position on, without holes, all committed. Moves the position."""
        assert isinstance(data.records, memoryview)
        is_committed = self._isolation == READ_COMMITTED
        end_offset = data.last_stable_offset if is_committed else data.high_watermark
        aborted = _Aborted(data) if is_committed else None
        for at, header in iter_batches(data.records):
            assert header.last_offset < end_offset, "clients see what is committed"
            assert header.base_offset <= position.offset <= header.last_offset, (
                f"a hole: asked for {position.offset}, got {header.base_offset} to {header.last_offset}"
            )
            check_served(key, floor, header)
            batch = data.records[at : at + header.size_bytes]
            self._oracle.read(key, header, batch)
            if not (self._is_left_out(key, header, aborted) or header.is_control):
                self._given(header, batch)
            position.offset = header.next_offset
            position.epoch = header.leader_epoch
            position.seen.update(self._oracle.read_in(key, header))
            self.batches_read += 1

    def _is_left_out(self, key: GroupKey, header: BatchHeader, aborted: _Aborted | None) -> bool:
        """`aborted`: None for a reader that wants everything."""
        if aborted is None:
            return False
        aborted.passes(header)
        if header.is_control:
            return False
        if aborted.leaves_out(header):
            self._oracle.committed_reads.left_out(key, header)
            return True
        self._oracle.committed_reads.given(key, header)
        return False

    def _given(self, header: BatchHeader, batch: memoryview) -> None:
        """The application gets a batch with data."""


class _Aborted:
    """What one answer says is aborted, as consumers use it: an aborted transaction goes from its first offset to the
    next marker of its producer."""

    def __init__(self, data: PartitionData) -> None:
        found = [(each.first_offset, each.producer_id) for each in data.aborted_transactions or ()]
        self._coming = sorted(found, reverse=True)
        self._producers: set[int] = set()

    def passes(self, header: BatchHeader) -> None:
        """The next batch of the answer, markers included."""
        while self._coming and self._coming[-1][0] <= header.last_offset:
            self._producers.add(self._coming.pop()[1])
        if header.is_control:
            self._producers.discard(header.producer_id)

    def leaves_out(self, header: BatchHeader) -> bool:
        return header.is_transactional and header.producer_id in self._producers


class Follower(Reader):
    """Reads on and on, with its leader epoch, and finds its position valid after each change of leaders: as the Java
    consumer does. One that is below the log start begins at the earliest offset again."""

    def __init__(
        self,
        client: Client,
        oracle: Oracle,
        topic: TopicPlan,
        partition: int,
        *,
        sends_last_epoch: bool,
        has_session: bool,
        isolation: int = READ_UNCOMMITTED,
    ) -> None:
        super().__init__(client, oracle, topic, partition, isolation)
        self._fetch: Fetch = InSession().fetch if has_session else fetch
        self._sends_last_epoch = sends_last_epoch
        #: By group: a topic that is created again is another one, and an old answer may still name the one before.
        self.positions: dict[GroupKey, Position] = {}

    def has_read_to(self, key: GroupKey, end_offset: int) -> bool:
        """Of a partition that this reader follows."""
        return key in self.positions and self.positions[key].offset >= end_offset

    def check_all_seen(self, key: GroupKey, log_start: int) -> None:
        """Once everything healed and was read to its end."""
        check_all_seen(self._oracle.acknowledged, key, self.positions[key].seen, log_start)

    @property
    def partition(self) -> tuple[str, int]:
        return self._topic.name, self._partition

    async def _step(self) -> None:
        leader = await self._leader()
        if leader is None:
            return
        position = self.positions.setdefault(leader.key, Position())
        if position.valid_under != leader.epoch and not await self._validate(leader, position):
            return
        floor = self._oracle.watermarks.floor(leader.key, leader.epoch)
        data = await self._fetch(
            self._client,
            leader,
            position.offset,
            epoch=leader.epoch,
            last_epoch=position.epoch if self._sends_last_epoch else -1,
            max_bytes=4096,
            isolation=self._isolation,
        )
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            await self._restart(leader, position)
            return
        if data.error_code != ErrorCode.NONE:
            self._refused(data.error_code)
            return
        assert data.diverging_epoch is None, f"{leader.key} at {position}: {data.diverging_epoch}"
        self._oracle.latest.check_committed(leader.key, data.high_watermark)
        self._oracle.watermarks.shown(
            leader.key,
            leader.epoch,
            floor,
            log_start=data.log_start_offset,
            high_watermark=data.high_watermark,
            last_stable=data.last_stable_offset,
        )
        self._oracle.committed_reads.told_stable(leader.key, data.last_stable_offset, data.log_start_offset)
        if data.records and not self._oracle.may_be_corrupt(leader.node_id, leader.key):
            self._check(leader.key, data, position, floor)

    async def _validate(self, leader: Leader, position: Position) -> bool:
        """OffsetForLeaderEpoch. It names a topic: of one that is re-created, the answer may be about another."""
        if position.epoch >= 0 and not self._topic.is_recreated:
            answer = await epoch_end(self._client, self._topic.name, leader, position.epoch)
            if answer.error_code != ErrorCode.NONE:
                self._refused(answer.error_code)
                return False
            check_position(
                leader.key, position.epoch, position.offset, answer.leader_epoch, answer.end_offset
            )
        position.valid_under = leader.epoch
        return True

    async def _restart(self, leader: Leader, position: Position) -> None:
        """What was read is committed, so a position can be out of range only by being deleted."""
        assert not self._topic.is_recreated, (
            f"{leader.key}: {position.offset} is out of range, nothing is deleted"
        )
        answer = await list_offsets(self._client, self._topic.name, leader, EARLIEST)
        if answer.error_code != ErrorCode.NONE:
            self._refused(answer.error_code)
            return
        assert answer.offset > position.offset, (
            f"{leader.key}: {position.offset} is out of range, the log begins at {answer.offset}"
        )
        position.offset = answer.offset
        position.epoch = -1


class Rereader(Reader):
    """Reads a partition from its start to its end, again and again, with whoever serves it: without epochs, as old
    clients do. A stale leader may show it less than somebody else was shown, and nothing that is wrong."""

    def __init__(
        self,
        client: Client,
        oracle: Oracle,
        topic: TopicPlan,
        partition: int,
        isolation: int = READ_UNCOMMITTED,
    ) -> None:
        super().__init__(client, oracle, topic, partition, isolation)
        self._position = Position()
        self._key: GroupKey | None = None

    async def _step(self) -> None:
        leader = await self._leader()
        if leader is None:
            return
        if leader.key != self._key:
            self._key, self._position = leader.key, Position()
        data = await fetch(
            self._client, leader, self._position.offset, max_bytes=8192, isolation=self._isolation
        )
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            answer = await list_offsets(self._client, self._topic.name, leader, EARLIEST)
            if answer.error_code != ErrorCode.NONE:
                self._refused(answer.error_code)
                return
            self._position = Position(offset=answer.offset)
        elif data.error_code != ErrorCode.NONE:
            self._refused(data.error_code)
        elif self._oracle.may_be_corrupt(leader.node_id, leader.key):
            return
        elif data.records:
            self._check(leader.key, data, self._position, Watermarks(data.log_start_offset, 0))
        else:
            self._position = Position(offset=data.log_start_offset)
            await asyncio.sleep(REREAD_PAUSE_S)
