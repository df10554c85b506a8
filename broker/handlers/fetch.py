"""Fetch: whole batches below the high watermark, or a long poll for them.

Behaviour
- At once if max_wait is not positive, nothing is asked for, min_bytes are there, or any partition has an error; else
  when one of these becomes so or max_wait has passed.
- At least one batch: the first partition with data gives its first batch however large; later ones give whole
  batches while they fit (client-behaviour.md B.4). Batches are never cut or decoded: the client skips what it has.
- read_committed is bounded by the last stable offset; without transactions that is the high watermark, and the
  list of aborted transactions is empty.
- A partition that is named twice closes the connection.
- Only the leader serves. Fetch sessions are not kept: session id 0 tells the client so (KIP-227).

Versions: 4 isolation level; 5 log_start_offset; 6 KAFKA_STORAGE_ERROR; 7 sessions; 9 current_leader_epoch; 11 rack;
12 last_fetched_epoch, flexible; 13 topic ids; 15 no replica_id; 16 node_endpoints (KIP-951).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from broker.handlers.api import Api
from protocol.api_keys import ApiKey
from protocol.codec import encode_parts
from protocol.errors import ErrorCode, KafkaError, ProtocolError
from protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from storage.errors import CorruptLogError

if TYPE_CHECKING:
    from broker.network.connection import Request
    from broker.node import Node
    from broker.replication.replica import Replica
    from storage.log_types import GroupKey, LogSlice

READ_COMMITTED = 1
#: How often a long poll looks whether its client is still there: it may have asked to wait for 24 days.
LOOK_FOR_CLIENT_S = 10.0
_LEADER_ERRORS = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


class PendingFetch:
    """A fetch request while it is looked at; a `FetchWaiter` while it waits."""

    def __init__(self, node: Node, request: Request, body: FetchRequest) -> None:
        self._node = node
        self._request = request
        self._body = body
        self._max_bytes = min(body.max_bytes, node.config.fetch_max_bytes)
        self._waiting_on: list[Replica] = []
        #: Loop time at which the poll ends, once it is parked.
        self._deadline = 0.0
        #: Set while it is parked.
        self._timer: asyncio.TimerHandle | None = None
        self._noted = False
        # Of the last look:
        self._allowed_bytes = 0
        self._size_bytes = 0
        self._has_error = False
        self._leaders: list[int] = []
        #: Partitions that would be answered OFFSET_OUT_OF_RANGE.
        self._out_of_range: list[tuple[Replica, PartitionData]] = []

    def start(self) -> None:
        response, slices = self._look()
        wait_ms = self._body.max_wait_ms
        if wait_ms <= 0 or not slices or self._has_error or self._size_bytes >= self._body.min_bytes:
            self._finish(response, slices)
            return
        for replica in self._waiting_on:
            replica.add_fetch_waiter(self)
        self._deadline = self._node.loop.time() + wait_ms / 1000
        self._set_timer()

    def _set_timer(self) -> None:
        loop = self._node.loop
        self._timer = loop.call_at(min(self._deadline, loop.time() + LOOK_FOR_CLIENT_S), self._timer_fired)

    def _finish(self, response: FetchResponse, slices: list[tuple[PartitionData, LogSlice | None]]) -> None:
        """Answer. A client throws its position away on OFFSET_OUT_OF_RANGE, so only a confirmed leader may say it: a
        deposed one that does not know yet has a shorter log (found by simulation seed 401)."""
        if not self._out_of_range:
            self._answer(response, slices)
            return

        def confirmed(keys: set[GroupKey]) -> None:
            if self._request.is_abandoned:
                return
            # Again: what was confirmed is the leader of now, and it may have what the one of then lacked.
            response, slices = self._look()
            for replica, data in self._out_of_range:
                if replica.key not in keys:
                    data.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            self._answer(response, slices)

        self._node.reads.confirm([replica for replica, _ in self._out_of_range], confirmed)

    def wake(self) -> None:
        """A partition moved: look again once, at the end of this turn."""
        if not self._noted:
            self._noted = True
            self._node.turn.note_sender(self)

    def flush(self) -> None:
        """The turn's end. Answers if there is enough now."""
        self._noted = False
        if self._timer is None:
            return
        if self._request.is_abandoned:
            self._stop_waiting()
            return
        response, slices = self._look()
        if self._has_error or self._size_bytes >= self._body.min_bytes:
            self._stop_waiting()
            self._finish(response, slices)

    def _timer_fired(self) -> None:
        if self._request.is_abandoned:
            self._stop_waiting()
        elif self._node.loop.time() < self._deadline:
            self._set_timer()
        else:
            self._stop_waiting()
            self._finish(*self._look())

    def _stop_waiting(self) -> None:
        assert self._timer is not None
        self._timer.cancel()
        self._timer = None
        for replica in self._waiting_on:
            replica.remove_fetch_waiter(self)

    def _answer(self, response: FetchResponse, slices: list[tuple[PartitionData, LogSlice | None]]) -> None:
        """Read what was found and send it. The reads happen here only, so a look costs no data."""
        for data, part in slices:
            data.records = part.view() if part is not None else b""
        for leader in self._leaders:
            host, port = self._node.view.endpoint_of(leader, self._request.listener)
            response.node_endpoints.append(NodeEndpoint(node_id=leader, host=host, port=port))
        self._request.reply_parts(encode_parts(response, self._request.api_version))

    def _look(self) -> tuple[FetchResponse, list[tuple[PartitionData, LogSlice | None]]]:
        """What could be answered now, without reading any data."""
        response = FetchResponse(responses=[])
        self._allowed_bytes = min(self._max_bytes, self._node.connections.answer_bytes)
        slices: list[tuple[PartitionData, LogSlice | None]] = []
        self._size_bytes = 0
        self._has_error = False
        self._leaders = []
        self._out_of_range = []
        waiting_on: list[Replica] = []
        by_id = self._request.api_version >= 13
        for topic in self._body.topics:
            partitions: list[PartitionData] = []
            response.responses.append(
                FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=partitions)
            )
            for wanted in topic.partitions:
                data = PartitionData(partition_index=wanted.partition)
                partitions.append(data)
                replica = None
                try:
                    if by_id:
                        replica = self._node.view.replica_of_id(topic.topic_id, wanted.partition)
                    else:
                        replica = self._node.view.replica_named(topic.topic, wanted.partition)
                    waiting_on.append(replica)
                    slices.append((data, self._look_at(replica, wanted, data)))
                except KafkaError as error:
                    self._has_error = True
                    slices.append((data, None))
                    if replica is not None and error.code == ErrorCode.OFFSET_OUT_OF_RANGE:
                        self._out_of_range.append((replica, data))
                    self._fill_error(data, error, topic, wanted.partition)
        if self._timer is None:
            self._waiting_on = waiting_on
        return response, slices

    def _look_at(self, replica: Replica, wanted: FetchPartition, data: PartitionData) -> LogSlice | None:
        replica.check_leader_epoch(wanted.current_leader_epoch)
        committed = self._body.isolation_level == READ_COMMITTED
        offset = wanted.fetch_offset
        log = replica.log
        start_offset = replica.log_start_offset
        if offset < start_offset or offset > log.end_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        data.high_watermark = replica.high_watermark
        data.last_stable_offset = replica.last_stable_offset
        data.log_start_offset = start_offset
        data.aborted_transactions = [] if committed else None
        if wanted.last_fetched_epoch >= 0 and self._diverges(replica, wanted, data):
            return None
        bound = replica.last_stable_offset if committed else replica.high_watermark
        left = self._allowed_bytes - self._size_bytes
        if offset >= bound or (left <= 0 and self._size_bytes):
            return None
        at_least_one = self._size_bytes == 0
        try:
            part = log.read(
                offset, min(wanted.partition_max_bytes, left), below_offset=bound, at_least_one=at_least_one
            )
        except CorruptLogError as error:
            self._node.replicas.log_corrupt(replica, error)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR) from error
        if part is not None:
            self._size_bytes += part.size_bytes
        return part

    def _diverges(self, replica: Replica, wanted: FetchPartition, data: PartitionData) -> bool:
        """KIP-320/595: the reader's last epoch must be one of ours and reach its position."""
        epoch, end_offset = replica.log.lineage.epoch_end_offset(
            wanted.last_fetched_epoch, replica.log.end_offset
        )
        if epoch < 0:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        if epoch == wanted.last_fetched_epoch and end_offset >= wanted.fetch_offset:
            return False
        data.diverging_epoch = EpochEndOffset(epoch=epoch, end_offset=end_offset)
        self._has_error = True
        return True

    def _fill_error(self, data: PartitionData, error: KafkaError, topic: FetchTopic, partition: int) -> None:
        data.error_code = error.code
        if error.code is ErrorCode.KAFKA_STORAGE_ERROR and self._request.api_version < 6:
            data.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER  # these versions do not know it
        data.high_watermark = -1
        data.last_stable_offset = -1
        data.log_start_offset = -1
        data.aborted_transactions = None
        if error.code in _LEADER_ERRORS and self._request.api_version >= 12:
            name = self._node.view.topic_name(topic.topic, topic.topic_id)
            leader, epoch = self._node.view.leader_of(name, partition)
            if leader >= 0:
                data.current_leader = LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
                if self._request.api_version >= 16 and leader not in self._leaders:
                    self._leaders.append(leader)


def handle(node: Node, request: Request, body: FetchRequest) -> None:
    if body.replica_id >= 0 or (body.replica_state is not None and body.replica_state.replica_id >= 0):
        raise ProtocolError("a replica id on a client listener: replicas meet on the controller listener")
    if body.session_id != 0 or body.session_epoch > 0:
        refused = FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND, responses=[])
        request.reply_parts(encode_parts(refused, request.api_version))
        return
    named = {(topic.topic, topic.topic_id, x.partition) for topic in body.topics for x in topic.partitions}
    if len(named) < sum(len(topic.partitions) for topic in body.topics):
        # A long poll looks at all that it names whenever one of them moves: half a million times the same one would
        # hold the node up. No client does that.
        raise ProtocolError("a fetch names a partition twice")
    PendingFetch(node, request, body).start()


API = Api(ApiKey.FETCH, 4, 16, FetchRequest, handle)
