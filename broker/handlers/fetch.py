"""Fetch: whole batches below the high watermark, or a long poll for them.

Behaviour
- The answer comes at once if max_wait is not positive, no partition is named, min_bytes can be read, or a partition has
  an error. Otherwise it comes when one of these conditions is met or max_wait has passed.
- The first partition with data gives at least its first batch, however large. Later partitions give whole batches while
  they fit (client-behaviour.md B.4). Batches are never cut or decoded: the client skips records that it has already.
- read_committed is bounded by the last stable offset; without transactions that is the high watermark, and the
  list of aborted transactions is empty.
- Only the leader serves.
- Sessions (KIP-227, broker.serving.fetch_sessions): epoch 0 ends the session that the request names and creates one;
  -1 only ends it. In a session the answer leaves out partitions that have not changed, and a scan visits only those
  that may have.
- Session id 0 in the answer: there is no session. A client without a session is served all the same.

Versions: 4 isolation level; 5 log_start_offset; 6 KAFKA_STORAGE_ERROR; 7 sessions; 9 current_leader_epoch; 11 rack;
12 last_fetched_epoch, flexible; 13 topic ids; 15 no replica_id; 16 node_endpoints (KIP-951); 17, 18 for replicas.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from broker.serving.api import Api
from broker.serving.fetch_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    TOPIC_IDS_VERSION,
    FetchSession,
    FetchTarget,
    FetchTargets,
)
from protocol.api_keys import ApiKey
from protocol.codec import encode_parts
from protocol.errors import ErrorCode, KafkaError, ProtocolError
from protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from storage.errors import CorruptLogError

if TYPE_CHECKING:
    from broker.network.request import Request
    from broker.replication.replica import Replica
    from broker.serving.context import Context
    from storage.log_types import GroupKey, LogSlice

READ_COMMITTED = 1
#: How often a long poll checks that its client is still connected: max_wait can be up to 24 days.
CHECK_CLIENT_S = 10.0
#: For how long a client is throttled whose long poll is ended early, at most. Consumers wait so long by default.
EARLY_THROTTLE_MS = 500
_LEADER_ERRORS = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


class PendingFetch:
    """A fetch request from its arrival to its answer, with or without a long poll."""

    def __init__(self, context: Context, request: Request, body: FetchRequest, targets: FetchTargets) -> None:
        self._context = context
        self._request = request
        self._body = body
        self._targets = targets
        self._session = targets if isinstance(targets, FetchSession) else None
        self._is_committed = body.isolation_level == READ_COMMITTED
        self._max_bytes = min(body.max_bytes, context.config.fetch_max_bytes)
        if (
            context.quotas.limits_fetch
            and (bound := context.quotas.fetch_bound(request.client_id)) is not None
        ):
            self._max_bytes = min(self._max_bytes, bound)
        #: Loop time at which the long poll ends. Valid while `_timer` is set.
        self._deadline = 0.0
        #: Set while the long poll waits.
        self._timer: asyncio.TimerHandle | None = None
        self._is_queued = False
        # Results of the last scan:
        self._allowed_bytes = 0
        self._size_bytes = 0
        #: Bytes that count for `min_bytes`. If a limit of the answer cuts a partition off, the whole limit counts.
        self._readable_bytes = 0
        self._has_error = False
        self._leaders: list[int] = []
        #: Partitions that would be answered OFFSET_OUT_OF_RANGE.
        self._out_of_range: list[FetchTarget] = []

    def start(self) -> None:
        self._scan()
        if self._body.max_wait_ms <= 0 or self._is_enough:
            self._finish()
            return
        self._deadline = self._context.now() + self._body.max_wait_ms / 1000
        self._targets.on_due = self._wake
        self._targets.watch()
        self._set_timer()
        if self._session is None:
            self._context.long_polls.add(self, len(self._targets))

    def end_early(self) -> None:
        """There is no room for fetches that wait. The client is throttled: it would ask again at once."""
        self._request.throttle(min(self._body.max_wait_ms, EARLY_THROTTLE_MS))
        self._stop_waiting()
        self._scan()
        self._finish()

    @property
    def _is_enough(self) -> bool:
        enough_bytes = min(self._body.min_bytes, self._allowed_bytes)
        return self._has_error or self._readable_bytes >= enough_bytes or not self._targets

    def _set_timer(self) -> None:
        loop = self._context.loop
        self._timer = loop.call_at(min(self._deadline, loop.time() + CHECK_CLIENT_S), self._timer_fired)

    def _wake(self) -> None:
        """A partition has changed: scan again once, at the end of this loop iteration."""
        if not self._is_queued:
            self._is_queued = True
            self._context.turn.add_sender(self)

    def flush(self) -> None:
        """The loop iteration ends. Answers if there is enough data now."""
        self._is_queued = False
        if self._timer is None:
            return
        if self._request.is_abandoned:
            self._abandon()
            return
        self._scan()
        if self._is_enough:
            self._stop_waiting()
            self._finish()
        else:
            self._targets.watch()

    def _timer_fired(self) -> None:
        if self._request.is_abandoned:
            self._abandon()
        elif self._context.now() < self._deadline:
            self._set_timer()
        else:
            self._stop_waiting()
            self._scan()
            self._finish()

    def _stop_waiting(self) -> None:
        assert self._timer is not None
        self._timer.cancel()
        self._timer = None
        self._targets.on_due = None
        self._context.long_polls.remove(self)

    def _abandon(self) -> None:
        """End without an answer, because the client has disconnected."""
        if self._timer is not None:
            self._stop_waiting()
        if self._session is None:
            self._targets.close()
        else:
            self._session.abandon_request()

    def _finish(self) -> None:
        """Answer. A client resets its position on OFFSET_OUT_OF_RANGE, so only a confirmed leader may answer it: a
        stale leader, which does not know yet that it is deposed, may have a shorter log."""
        if not self._out_of_range:
            self._answer()
            return

        def confirmed(keys: set[GroupKey]) -> None:
            if self._request.is_abandoned:
                self._abandon()
                return
            # Scan again: this node may have been elected anew since the last scan, and may have the records now.
            self._scan()
            for target in self._out_of_range:
                assert target.replica is not None and target.answer is not None
                if target.replica.key not in keys:
                    target.answer.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            self._answer()

        self._targets.watch()
        replicas = [target.replica for target in self._out_of_range if target.replica is not None]
        self._context.reads.confirm(replicas, confirmed)

    def _answer(self) -> None:
        """Read the records that the last scan found, and send them. A scan itself reads no records."""
        if self._size_bytes and self._request.connection.is_backed_up:
            # The client has asked several times at once. It gets the answers before this one, and asks again.
            self._answer_nothing()
            return
        quotas = self._context.quotas
        if (
            quotas.limits_fetch
            and self._size_bytes
            and (throttle_ms := quotas.charge_fetch(self._request.client_id, self._size_bytes))
        ):
            self._request.throttle(throttle_ms)
            self._answer_nothing()
            return
        response = FetchResponse(responses=[])
        # In a session a topic can be in the answer more than once, as in Kafka: partitions have the order of
        # `to_report`.
        topic: FetchTarget | None = None
        for target in self._targets.to_report:
            if topic is None or target.topic is not topic.topic or target.topic_id is not topic.topic_id:
                topic = target
                partitions: list[PartitionData] = []
                response.responses.append(
                    FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=partitions)
                )
            data = target.answer
            assert data is not None
            data.records = b"" if target.part is None else target.part.view()
            partitions.append(data)
        for leader in self._leaders:
            host, port = self._context.view.endpoint_of(leader, self._request.listener)
            response.node_endpoints.append(NodeEndpoint(node_id=leader, host=host, port=port))
        if self._session is None:
            self._targets.close()
        else:
            self._session.complete_request()
            response.session_id = self._session.session_id
        self._request.reply_parts(encode_parts(response, self._request.api_version))

    def _answer_nothing(self) -> None:
        """The answer is empty, and the session stays as it was. A new session is not created, because clients ignore
        the session id of an empty answer. A client above its quota is answered so, too (KIP-219)."""
        response = FetchResponse(responses=[])
        if self._session is None:
            self._targets.close()
        elif self._body.session_epoch == INITIAL_EPOCH:
            self._context.fetch_sessions.close(self._session.session_id)
        else:
            self._session.abandon_request()
            response.session_id = self._session.session_id
        self._request.reply_parts(encode_parts(response, self._request.api_version))

    def _scan(self) -> None:
        """Find what could be answered now about the partitions that are due, without reading records."""
        self._allowed_bytes = min(self._max_bytes, self._context.connections.answer_bytes)
        self._size_bytes = 0
        self._readable_bytes = 0
        self._has_error = False
        self._leaders = []
        self._out_of_range = []
        # Another dict, because a scan may change a partition, which makes it due again.
        due, self._targets.due = self._targets.due, {}
        self._targets.scanned = due
        for target in due:
            try:
                self._scan_target(target)
            except KafkaError as error:
                self._refuse(target, error)

    def _scan_target(self, target: FetchTarget) -> None:
        targets, wanted = self._targets, target.wanted
        replica = target.replica
        if replica is None or not replica.is_open:
            target.replica = None
            replica = target.replica = self._find(target)
        replica.check_leader_epoch(wanted.current_leader_epoch)
        offset = wanted.fetch_offset
        high_watermark, last_stable_offset = replica.high_watermark, replica.last_stable_offset
        start_offset = replica.log_start_offset
        if offset < start_offset or offset > replica.log.end_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        diverging = self._divergence(replica, wanted) if wanted.last_fetched_epoch >= 0 else None
        bound = last_stable_offset if self._is_committed else high_watermark
        target.part = None
        if diverging is not None:
            self._has_error = True
            targets.due[target] = None
        elif offset < bound:
            target.part = self._slice(replica, wanted, bound)
            targets.due[target] = None
        elif target.reported == (high_watermark, last_stable_offset, start_offset):
            targets.to_report.pop(target, None)
            return
        data = target.answer = PartitionData(partition_index=wanted.partition)
        data.high_watermark = high_watermark
        data.last_stable_offset = last_stable_offset
        data.log_start_offset = start_offset
        data.aborted_transactions = [] if self._is_committed else None
        data.diverging_epoch = diverging
        targets.to_report[target] = None

    def _find(self, target: FetchTarget) -> Replica:
        if self._request.api_version >= TOPIC_IDS_VERSION:
            return self._context.view.replica_of_id(target.topic_id, target.wanted.partition)
        return self._context.view.replica_named(target.topic, target.wanted.partition)

    def _slice(self, replica: Replica, wanted: FetchPartition, bound: int) -> LogSlice | None:
        """The whole batches from the fetch offset on that fit into the answer. None: no room, or no records."""
        left = self._allowed_bytes - self._size_bytes
        if left <= 0 and self._size_bytes:
            return None
        limit_bytes = min(wanted.partition_max_bytes, left)
        try:
            part = replica.log.read(
                wanted.fetch_offset, limit_bytes, below_offset=bound, at_least_one=self._size_bytes == 0
            )
        except CorruptLogError as error:
            self._context.replicas.log_corrupt(replica, error)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR) from error
        size_bytes = 0 if part is None else part.size_bytes
        is_cut = part is None or part.next_offset < bound
        self._size_bytes += size_bytes
        self._readable_bytes += max(size_bytes, limit_bytes) if is_cut else size_bytes
        return part

    def _divergence(self, replica: Replica, wanted: FetchPartition) -> EpochEndOffset | None:
        """None if the client's last fetched epoch is in this log and reaches up to its fetch offset. Otherwise the
        epoch and offset where the logs diverge (KIP-320, KIP-595)."""
        epoch, end_offset = replica.log.lineage.epoch_end_offset(
            wanted.last_fetched_epoch, replica.log.end_offset
        )
        if epoch < 0:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        if epoch == wanted.last_fetched_epoch and end_offset >= wanted.fetch_offset:
            return None
        return EpochEndOffset(epoch=epoch, end_offset=end_offset)

    def _refuse(self, target: FetchTarget, error: KafkaError) -> None:
        """Answer an error for a partition. It stays due, so that each scan visits it."""
        self._has_error = True
        version, partition = self._request.api_version, target.wanted.partition
        # Its watermarks keep their default of -1.
        data = PartitionData(partition_index=partition, error_code=error.code)
        target.answer, target.part = data, None
        self._targets.to_report[target] = None
        self._targets.due[target] = None
        if error.code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._out_of_range.append(target)
        elif error.code is ErrorCode.KAFKA_STORAGE_ERROR and version < 6:
            data.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER  # these versions do not know it
        elif error.code in _LEADER_ERRORS and version >= 12:
            name = self._context.view.topic_name(target.topic, target.topic_id)
            leader, epoch = self._context.view.leader_of(name, partition)
            if leader >= 0:
                data.current_leader = LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
                if version >= 16 and leader not in self._leaders:
                    self._leaders.append(leader)


def handle(context: Context, request: Request, body: FetchRequest) -> None:
    if body.replica_id >= 0 or (body.replica_state is not None and body.replica_state.replica_id >= 0):
        raise ProtocolError("a replica id on a client listener: replicas connect to the controller listener")
    try:
        targets = _targets(context, body, by_id=request.api_version >= TOPIC_IDS_VERSION)
    except KafkaError as error:
        refused = FetchResponse(error_code=error.code, responses=[])
        request.reply_parts(encode_parts(refused, request.api_version))
        return
    PendingFetch(context, request, body, targets).start()


def _targets(context: Context, body: FetchRequest, *, by_id: bool) -> FetchTargets:
    """The partitions that the request fetches. Raises KafkaError as `FetchSessions.resume`."""
    sessions = context.fetch_sessions
    session: FetchSession | None
    if body.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
        sessions.close(body.session_id)
        creates = body.session_epoch == INITIAL_EPOCH
        session = sessions.create(body.topics, context.now(), by_id=by_id) if creates else None
    else:
        session = sessions.resume(
            body.session_id,
            body.session_epoch,
            body.topics,
            body.forgotten_topics_data,
            context.now(),
            by_id=by_id,
        )
    if session is not None:
        session.start_request(body.isolation_level)
        return session
    targets = FetchTargets()
    targets.add_topics(body.topics, by_id=by_id)
    return targets


API = Api(ApiKey.FETCH, 4, 18, FetchRequest, handle)
