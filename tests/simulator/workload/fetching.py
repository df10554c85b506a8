"""How readers fetch: each time everything, or in a session that tells only what changed (KIP-227)."""

from __future__ import annotations

import asyncio
from typing import Protocol

from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from storage.log_types import GroupKey
from tests.simulator.client import Client, Connection, Leader

FETCH_VERSION = 13
MAX_WAIT_MS = 200
#: Isolation levels.
READ_UNCOMMITTED, READ_COMMITTED = 0, 1


class Fetch(Protocol):
    async def __call__(
        self,
        client: Client,
        leader: Leader,
        offset: int,
        *,
        epoch: int = -1,
        last_epoch: int = -1,
        max_bytes: int,
        isolation: int = READ_UNCOMMITTED,
    ) -> PartitionData:
        """What a partition's leader answers. `epoch`: the current one as far as the reader knows; `last_epoch`: of the
        batch before `offset`; -1 names none. Raises OSError, TimeoutError."""


async def fetch(
    client: Client,
    leader: Leader,
    offset: int,
    *,
    epoch: int = -1,
    last_epoch: int = -1,
    max_bytes: int,
    isolation: int = READ_UNCOMMITTED,
) -> PartitionData:
    """A `Fetch` without a session."""
    wanted = _wanted(leader, offset, epoch, last_epoch, max_bytes)
    while True:
        answer = await _ask(await client.broker(leader.node_id), leader, [wanted], isolation)
        if not await _is_throttled(answer):
            return answer.responses[0].partitions[0]


class InSession:
    """A `Fetch` in a session, on one connection and of one partition at a time; another one begins it anew."""

    def __init__(self) -> None:
        self._connection: Connection | None = None
        self._key: GroupKey | None = None
        self._id = 0
        #: Of the next request; 0 begins a session.
        self._epoch = 0
        #: What the node was told last, and what it told in this session.
        self._wanted: FetchPartition | None = None
        self._known: PartitionData | None = None

    async def fetch(
        self,
        client: Client,
        leader: Leader,
        offset: int,
        *,
        epoch: int = -1,
        last_epoch: int = -1,
        max_bytes: int,
        isolation: int = READ_UNCOMMITTED,
    ) -> PartitionData:
        wanted = _wanted(leader, offset, epoch, last_epoch, max_bytes)
        while True:
            connection = await client.broker(leader.node_id)
            if connection is not self._connection:
                self._connection, self._id, self._epoch = connection, 0, 0
            elif leader.key != self._key:
                self._epoch = 0  # ends the session of that id
            self._key = leader.key
            answer = await self._ask(connection, leader, wanted, isolation)
            if not await _is_throttled(answer):
                return self._learn(answer)

    async def _ask(
        self, connection: Connection, leader: Leader, wanted: FetchPartition, isolation: int
    ) -> FetchResponse:
        begins = self._epoch == 0
        named = [wanted] if begins or wanted != self._wanted else []
        answer = await _ask(connection, leader, named, isolation, self._id, self._epoch)
        if answer.error_code:
            assert answer.error_code in _SESSION_ERRORS and not begins, ErrorCode(answer.error_code)
            self._id = self._epoch = 0
            raise OSError("the session is over")
        self._wanted = wanted
        self._id = answer.session_id
        self._epoch = self._epoch + 1 if self._id else 0
        if begins:
            self._known = None
        return answer

    def _learn(self, answer: FetchResponse) -> PartitionData:
        named = [data for topic in answer.responses for data in topic.partitions]
        if named:
            [self._known] = named
            return self._known
        assert self._known is not None, "who begins a session is told everything"
        assert self._known.error_code == ErrorCode.NONE, "errors are told each time"
        self._known.records = b""
        return self._known


_SESSION_ERRORS = (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH)


async def _is_throttled(answer: FetchResponse) -> bool:
    """Whether the answer tells nothing but to come back later (KIP-219). Waits until then."""
    if not answer.throttle_time_ms or answer.responses:
        return False
    await asyncio.sleep(answer.throttle_time_ms / 1000)
    return True


def _wanted(leader: Leader, offset: int, epoch: int, last_epoch: int, max_bytes: int) -> FetchPartition:
    return FetchPartition(
        partition=leader.key.partition,
        current_leader_epoch=epoch,
        fetch_offset=offset,
        last_fetched_epoch=last_epoch,
        partition_max_bytes=max_bytes,
    )


async def _ask(
    connection: Connection,
    leader: Leader,
    wanted: list[FetchPartition],
    isolation: int,
    session_id: int = 0,
    session_epoch: int = -1,
) -> FetchResponse:
    body = FetchRequest(
        max_wait_ms=MAX_WAIT_MS,
        min_bytes=1,
        isolation_level=isolation,
        session_id=session_id,
        session_epoch=session_epoch,
        topics=[FetchTopic(topic_id=leader.key.topic_id, partitions=wanted)] if wanted else [],
    )
    return await connection.request(ApiKey.FETCH, FETCH_VERSION, body, FetchResponse)
