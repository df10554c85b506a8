"""Writing transaction markers into the partitions that this node leads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Protocol

from broker.replication.replica import Replica
from broker.replication.waits import Acknowledged
from broker.scheduling.background import Background, Steps
from protocol.controller.transactions import ErrorCodesResult, MarkerToWrite, WriteMarkers
from protocol.errors import ErrorCode, KafkaError
from protocol.records.control import Marker
from storage.log_types import GroupKey
from storage.producer_state import NO_ATTEMPT

#: An answer waits for so long until all its markers are committed. Those that are not are asked for again.
ANSWER_WITHIN_S = 0.5
#: The code of a marker that is not committed yet. No Kafka error code has this value.
_PENDING = -32768

Reply = Callable[[ErrorCodesResult | KafkaError, int], None]


class AppendMarker(Protocol):
    """The door of a coordinator to the partitions of its topic (`CoordinatorRuntime.append_marker`)."""

    def __call__(
        self,
        replica: Replica,
        producer_id: int,
        producer_epoch: int,
        marker: Marker,
        attempt: int,
        done: Callable[[int | KafkaError], None],
    ) -> None: ...


class MarkerWriter:
    def __init__(
        self,
        replicas: Mapping[GroupKey, Replica],
        coordinators: Mapping[str, AppendMarker],
        loop: asyncio.AbstractEventLoop,
        background: Background,
    ) -> None:
        """`coordinators`: by the names of their topics."""
        self._replicas = replicas
        self._coordinators = coordinators
        self._loop = loop
        self._background = background

    def execute(self, request: WriteMarkers, reply: Reply) -> None:
        """The coordinator of a transaction asks (`broker.controller.server.Execute`)."""
        answer = _Answer(len(request.markers), reply)
        self._loop.call_later(ANSWER_WITHIN_S, answer.give)
        self._background.begin(self._write_all(request.markers, answer))

    def _write_all(self, markers: list[MarkerToWrite], answer: _Answer) -> Steps:
        for slot, wanted in enumerate(markers):
            try:
                self._write(wanted, slot, answer)
            except KafkaError as error:
                answer.partition_done(slot, error.code)
            yield

    def _write(self, wanted: MarkerToWrite, slot: int, answer: _Answer) -> None:
        """Raises KafkaError."""
        replica = self._replicas.get(GroupKey(wanted.topic_id, wanted.partition))
        if replica is None or not replica.is_serving or replica.leader_epoch != wanted.leader_epoch:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if replica.is_metadata or wanted.producer_id < 0 or wanted.producer_epoch < 0:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        marker = Marker(wanted.is_commit, wanted.coordinator_epoch)
        self.append(replica, wanted.producer_id, wanted.producer_epoch, marker, answer, slot, wanted.attempt)

    def append(
        self,
        replica: Replica,
        producer_id: int,
        producer_epoch: int,
        marker: Marker,
        answer: Acknowledged,
        slot: int,
        attempt: int = NO_ATTEMPT,
    ) -> None:
        """Append a marker to a partition that this node leads. `answer` is told when it is committed, or why it is not
        appended. `attempt`: as `MarkerToWrite`. Raises KafkaError."""
        append = self._coordinators.get(replica.topic)
        if append is None:
            end_offset = replica.append_marker(producer_id, producer_epoch, marker, attempt)
            replica.waits.add_commit(end_offset, answer, slot)
        else:
            done = partial(_appended, replica, slot, answer)
            append(replica, producer_id, producer_epoch, marker, attempt, done)


def _appended(replica: Replica, slot: int, answer: Acknowledged, end_offset: int | KafkaError) -> None:
    if isinstance(end_offset, KafkaError):
        answer.partition_done(slot, end_offset.code)
    else:
        replica.waits.add_commit(end_offset, answer, slot)


class _Answer:
    """The answer to one request."""

    __slots__ = ("_codes", "_missing", "_reply")

    def __init__(self, count: int, reply: Reply) -> None:
        self._codes = [_PENDING] * count
        self._missing = count
        #: None: it is given.
        self._reply: Reply | None = reply
        if not count:
            self.give()

    def partition_done(self, slot: int, error: ErrorCode) -> None:
        if self._codes[slot] == _PENDING:
            self._codes[slot] = error
            self._missing -= 1
            if not self._missing:
                self.give()

    def give(self) -> None:
        """Answer now, unless that is done."""
        reply, self._reply = self._reply, None
        if reply is not None:
            late = ErrorCode.REQUEST_TIMED_OUT
            codes = [int(late) if code == _PENDING else code for code in self._codes]
            reply(ErrorCodesResult(error_codes=codes), 0)
