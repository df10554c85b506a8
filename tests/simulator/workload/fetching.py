"""How readers fetch: each time everything, or in a session that tells only what changed (KIP-227)."""

from __future__ import annotations

from typing import Protocol

from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from tests.simulator.client import Client, Connection, Leader

FETCH_VERSION = 13
MAX_WAIT_MS = 200


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
    ) -> PartitionData:
        """What a partition's leader answers. `epoch`: the current one as far as the reader knows; `last_epoch`: of the
        batch before `offset`; -1 names none. Raises OSError, TimeoutError."""


async def fetch(
    client: Client, leader: Leader, offset: int, *, epoch: int = -1, last_epoch: int = -1, max_bytes: int
) -> PartitionData:
    """A `Fetch` without a session."""
    connection = await client.broker(leader.node_id)
    wanted = _wanted(leader, offset, epoch, last_epoch, max_bytes)
    answer = await _ask(connection, leader, [wanted])
    return answer.responses[0].partitions[0]


class InSession:
    """A `Fetch` in a session, on one connection and of one partition at a time; another one begins it anew."""

    def __init__(self) -> None:
        self._connection: Connection | None = None
        self._leader: Leader | None = None
        self._id = 0
        #: Of the next request; 0 begins a session.
        self._epoch = 0
        #: What the node was told last, and what it told.
        self._wanted: FetchPartition | None = None
        self._known = PartitionData(partition_index=-1)

    async def fetch(
        self,
        client: Client,
        leader: Leader,
        offset: int,
        *,
        epoch: int = -1,
        last_epoch: int = -1,
        max_bytes: int,
    ) -> PartitionData:
        connection = await client.broker(leader.node_id)
        if connection is not self._connection:
            self._connection, self._id, self._epoch = connection, 0, 0
        elif self._leader is None or leader.key != self._leader.key:
            self._epoch = 0  # ends the session of that id
        self._leader = leader
        wanted = _wanted(leader, offset, epoch, last_epoch, max_bytes)
        is_named = self._epoch == 0 or wanted != self._wanted
        answer = await _ask(connection, leader, [wanted] if is_named else [], self._id, self._epoch)
        if answer.error_code:
            assert answer.error_code in _SESSION_ERRORS and self._epoch, ErrorCode(answer.error_code)
            self._id = self._epoch = 0
            raise OSError("the session is over")
        self._wanted = wanted
        named = [data for topic in answer.responses for data in topic.partitions]
        if named:
            [self._known] = named
        else:
            assert self._epoch, "who begins a session is told everything"
            assert self._known.error_code == ErrorCode.NONE, "errors are told each time"
            self._known.records = b""
        self._id = answer.session_id
        self._epoch = self._epoch + 1 if self._id else 0
        return self._known


_SESSION_ERRORS = (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH)


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
    session_id: int = 0,
    session_epoch: int = -1,
) -> FetchResponse:
    body = FetchRequest(
        max_wait_ms=MAX_WAIT_MS,
        min_bytes=1,
        session_id=session_id,
        session_epoch=session_epoch,
        topics=[FetchTopic(topic_id=leader.key.topic_id, partitions=wanted)] if wanted else [],
    )
    return await connection.request(ApiKey.FETCH, FETCH_VERSION, body, FetchResponse)
