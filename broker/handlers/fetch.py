"""Fetch: whole batches below the high watermark, or a long poll for them.

Behaviour
- The answer comes at once if max_wait is not positive, no partition is named, min_bytes can be read, or a partition has
  an error. Otherwise it comes when one of these conditions is met or max_wait has passed.
- The first partition with data gives at least its first batch, however large. Later partitions give whole batches while
  they fit (client-behaviour.md B.4). Batches are never cut or decoded: the client skips records that it has already.
- read_committed is bounded by the last stable offset, and the answer names the aborted transactions that its records
  overlap: the client leaves these out. Those of an old segment may have to be found first; the long poll waits for it.
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
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from broker.serving.api import Api
from broker.serving.fetch_scan import FetchScan
from broker.serving.fetch_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    TOPIC_IDS_VERSION,
    FetchSession,
    FetchTarget,
    FetchTargets,
)
from broker.serving.steps import FEW_PARTS, Steps, reply, unless_done
from protocol.api_keys import ApiKey
from protocol.codec import encode_parts
from protocol.errors import ErrorCode, KafkaError, ProtocolError
from protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    NodeEndpoint,
)

if TYPE_CHECKING:
    from broker.network.request import Request
    from broker.serving.context import Context
    from storage.log_types import GroupKey

#: How often a long poll checks that its client is still connected: max_wait can be up to 24 days.
CHECK_CLIENT_S = 10.0
#: For how long a client is throttled whose long poll is ended early, at most. Consumers wait so long by default.
EARLY_THROTTLE_MS = 500

E = TypeVar("E")
T = TypeVar("T", FetchTopic, ForgottenTopic)


class PendingFetch:
    """A fetch request from its arrival to its answer, with or without a long poll."""

    def __init__(self, context: Context, request: Request, body: FetchRequest, targets: FetchTargets) -> None:
        self._context = context
        self._request = request
        self._body = body
        self._targets = targets
        self._session = targets if isinstance(targets, FetchSession) else None
        self._scan = FetchScan(context, request, body, targets)
        #: Loop time at which the long poll ends. 0: it did not begin.
        self._deadline = 0.0
        #: Set while the long poll waits.
        self._timer: asyncio.TimerHandle | None = None
        self._is_queued = False
        #: A target has changed behind a scan in steps.
        self._has_changed = False

    def start(self) -> None:
        self._scan_and(self._decide)

    def _scan_and(self, then: Callable[[], None]) -> None:
        if len(self._targets.due) <= FEW_PARTS:
            self._scan.scan()
            then()
        else:
            self._targets.on_due = self._note_change
            self._has_changed = False
            scan = unless_done(self._scan.scan_in_steps(), self._abandon)
            self._context.long_requests.resume(self._request, self._scanned(scan, then))

    def _scanned(self, scan: Steps, then: Callable[[], None]) -> Steps:
        yield from scan
        self._targets.on_due = None
        then()

    def _note_change(self) -> None:
        self._has_changed = True

    def _decide(self) -> None:
        """The targets are scanned: answer or wait."""
        if self._scan.is_enough or self._body.max_wait_ms <= 0:
            self._finish()
            return
        now = self._context.now()
        self._deadline = self._deadline or now + self._body.max_wait_ms / 1000
        if now >= self._deadline:
            self._finish()
            return
        self._targets.on_due = self._wake
        self._targets.watch()
        self._set_timer()
        if self._session is None:
            self._context.long_polls.add(self, len(self._targets))
        if self._has_changed:
            self._has_changed = False
            self._wake()

    def end_early(self) -> None:
        """There is no room for fetches that wait. The client is throttled: it would ask again at once."""
        self._request.throttle(min(self._body.max_wait_ms, EARLY_THROTTLE_MS))
        self._stop_waiting()
        self._scan_and(self._finish)

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
        if len(self._targets.due) > FEW_PARTS:
            self._stop_waiting()
            self._scan_and(self._decide)
            return
        self._scan.scan()
        if self._scan.is_enough:
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
            self._scan_and(self._finish)

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
        self._targets.on_due = None
        if self._session is None:
            self._targets.close()
        else:
            self._session.abandon_request()

    def _finish(self) -> None:
        """Answer. A client resets its position on OFFSET_OUT_OF_RANGE, so only a confirmed leader may answer it: a
        stale leader, which does not know yet that it is deposed, may have a shorter log."""
        if not self._scan.out_of_range:
            self._answer()
            return

        def answer(keys: set[GroupKey]) -> None:
            for target in self._scan.out_of_range:
                assert target.replica is not None and target.answer is not None
                if target.replica.key not in keys:
                    target.answer.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            self._answer()

        def confirmed(keys: set[GroupKey]) -> None:
            if self._request.is_abandoned:
                self._abandon()
                return
            # Scan again: this node may have been elected anew since the last scan, and may have the records now.
            self._scan_and(partial(answer, keys))

        self._targets.watch()
        replicas = [target.replica for target in self._scan.out_of_range if target.replica is not None]
        self._context.reads.confirm(replicas, confirmed)

    def _answer(self) -> None:
        """Read the records that the last scan found, and send them. A scan itself reads no records."""
        if self._scan.size_bytes and self._request.connection.is_backed_up:
            # The client has asked several times at once. It gets the answers before this one, and asks again.
            self._answer_nothing()
            return
        quotas = self._context.quotas
        if (
            quotas.limits_fetch
            and self._scan.size_bytes
            and (throttle_ms := quotas.charge_fetch(self._request.client_id, self._scan.size_bytes))
        ):
            self._request.throttle(throttle_ms)
            self._answer_nothing()
            return
        response = FetchResponse(responses=[])
        reported = list(self._targets.to_report)
        if len(reported) > FEW_PARTS:
            if self._session is not None:
                self._session.watch()  # a change behind the last scan is for the next answer
            parts = unless_done(self._add_parts_in_steps(response, reported), self._abandon)
            self._context.long_requests.resume(self._request, self._respond(response, parts))
            return
        self._add_parts(response, reported)
        if self._session is not None:
            self._session.note_reported(reported)
        self._complete(response)
        self._request.reply_parts(encode_parts(response, self._request.api_version))

    def _respond(self, response: FetchResponse, parts: Steps) -> Steps:
        yield from parts
        self._complete(response)
        yield from reply(self._request, response)

    def _add_parts_in_steps(self, response: FetchResponse, reported: list[FetchTarget]) -> Steps:
        for some in _in_pieces(reported):
            self._add_parts(response, some)
            yield
        if self._session is not None:
            for some in _in_pieces(reported):
                self._session.note_reported(some)
                yield

    def _add_parts(self, response: FetchResponse, targets: list[FetchTarget]) -> None:
        """In a session a topic can be in the answer more than once, as in Kafka: partitions have the order of
        `to_report`."""
        topic: FetchableTopicResponse | None = response.responses[-1] if response.responses else None
        for target in targets:
            if topic is None or topic.topic is not target.topic or topic.topic_id is not target.topic_id:
                topic = FetchableTopicResponse(topic=target.topic, topic_id=target.topic_id, partitions=[])
                response.responses.append(topic)
            data = target.answer
            assert data is not None
            data.records = b"" if target.part is None else target.part.view()
            if target.part is not None and target.replica is not None:
                target.replica.traffic.fetched_bytes += target.part.size_bytes
            topic.partitions.append(data)

    def _complete(self, response: FetchResponse) -> None:
        for leader in self._scan.leaders:
            host, port = self._context.view.endpoint_of(leader, self._request.listener)
            response.node_endpoints.append(NodeEndpoint(node_id=leader, host=host, port=port))
        if self._session is None:
            self._targets.close()
        else:
            self._session.complete_request()
            response.session_id = self._session.session_id

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


def handle(context: Context, request: Request, body: FetchRequest) -> Steps | None:
    if body.replica_id >= 0 or (body.replica_state is not None and body.replica_state.replica_id >= 0):
        raise ProtocolError("a replica id on a client listener: replicas connect to the controller listener")
    is_by_id = request.api_version >= TOPIC_IDS_VERSION
    try:
        targets = _open(context, body, is_by_id)
        if (body.topics or body.forgotten_topics_data) and _partition_count(body) > FEW_PARTS:
            return _change_and_start(context, request, body, targets, is_by_id)
        targets.add_topics(body.topics, by_id=is_by_id)
        targets.remove_topics(body.forgotten_topics_data, by_id=is_by_id)
        _start(context, request, body, targets)
    except KafkaError as error:
        _refuse(request, error)
    return None


def _refuse(request: Request, error: KafkaError) -> None:
    refused = FetchResponse(error_code=error.code, responses=[])
    request.reply_parts(encode_parts(refused, request.api_version))


def _partition_count(body: FetchRequest) -> int:
    return sum(
        1 + len(topic.partitions) for topics in (body.topics, body.forgotten_topics_data) for topic in topics
    )


def _open(context: Context, body: FetchRequest, is_by_id: bool) -> FetchTargets:
    """The session of the request, or targets without one. Raises KafkaError as `FetchSessions.find`."""
    sessions = context.fetch_sessions
    if body.session_epoch not in (INITIAL_EPOCH, FINAL_EPOCH):
        return sessions.find(body.session_id, body.session_epoch, body.topics, by_id=is_by_id)
    sessions.close(body.session_id)
    session: FetchTargets | None = None
    if body.session_epoch == INITIAL_EPOCH:
        session = sessions.new_session(body.topics, context.now(), by_id=is_by_id)
    return FetchTargets() if session is None else session


def _change_and_start(
    context: Context, request: Request, body: FetchRequest, targets: FetchTargets, is_by_id: bool
) -> Steps:
    """For a request that names many partitions. A session that is half changed ends."""

    def end_session() -> None:
        if isinstance(targets, FetchSession):
            context.fetch_sessions.close(targets.session_id)

    yield from unless_done(_change(body, targets, is_by_id), end_session)
    try:
        _start(context, request, body, targets)
    except KafkaError as error:
        _refuse(request, error)


def _change(body: FetchRequest, targets: FetchTargets, is_by_id: bool) -> Steps:
    for topics in _in_pieces_of_topics(body.topics):
        targets.add_topics(topics, by_id=is_by_id)
        yield
    for forgotten in _in_pieces_of_topics(body.forgotten_topics_data):
        targets.remove_topics(forgotten, by_id=is_by_id)
        yield


def _start(context: Context, request: Request, body: FetchRequest, targets: FetchTargets) -> None:
    """The targets are those of the request now. Raises KafkaError as `FetchSessions.keep` and `resume`."""
    if isinstance(targets, FetchSession):
        if body.session_epoch == INITIAL_EPOCH:
            context.fetch_sessions.keep(targets, context.now())
            targets.start_request(body.isolation_level)
        elif context.fetch_sessions.resume(targets, context.now()):
            targets.start_request(body.isolation_level)
        else:
            targets = FetchTargets()
    PendingFetch(context, request, body, targets).start()


def _in_pieces_of_topics(topics: list[T]) -> Iterator[list[T]]:
    """The same partitions, a few at a time."""
    return (
        [type(topic)(topic=topic.topic, topic_id=topic.topic_id, partitions=some)]
        for topic in topics
        for some in _in_pieces(topic.partitions)
    )


def _in_pieces(things: list[E]) -> Iterator[list[E]]:
    return (things[first : first + FEW_PARTS] for first in range(0, len(things), FEW_PARTS))


API = Api(ApiKey.FETCH, 4, 18, FetchRequest, handle)
