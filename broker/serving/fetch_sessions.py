"""Fetch sessions (KIP-227): the node keeps what a client fetches between its requests. So a request names only what has
changed, a scan visits only partitions that may have changed, and an answer contains only those that have.

Values: no connection, no waiting. `FetchTargets` is what one client fetches, in one request or in a session.
`FetchSessions` is the bounded cache of sessions. broker.handlers.fetch scans the targets and answers.

Between two scans each target is in one of three states:
- due: the next scan visits it. It is new, was named again, was woken by its replica, or had records or an error.
- in `scanned`: the last scan found nothing to report for it.
- watched: as `scanned`, and its replica wakes it once when that may have changed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from protocol.errors import ErrorCode, KafkaError
from protocol.messages.fetch import FetchPartition, FetchTopic, ForgottenTopic, PartitionData

if TYPE_CHECKING:
    from broker.replication.replica import Replica
    from storage.log_types import LogSlice

#: Session epochs with a special meaning: create a session (0), and end it or have none (-1). Others are above 0.
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
_MAX_EPOCH = 2**31 - 1
#: The first version whose requests name topics by their ids.
TOPIC_IDS_VERSION = 13
#: A session that is this old may be evicted for a session with more partitions. One that was not used for this long may
#: be evicted for any other (Kafka's min.incremental.fetch.session.eviction.ms, which cannot be set there either).
EVICTABLE_S = 120.0

#: Topic name, or from version 13 on its id as a number; partition.
TargetKey = tuple[str | int, int]
#: High watermark, last stable offset, log start.
Watermarks = tuple[int, int, int]


class FetchTarget:
    """One partition in the fetches of one client. A replica wakes it (`wake`)."""

    __slots__ = ("answer", "part", "replica", "reported", "targets", "topic", "topic_id", "wanted")

    def __init__(self, targets: FetchTargets, topic: FetchTopic, wanted: FetchPartition) -> None:
        self.targets = targets
        self.topic = topic.topic
        self.topic_id = topic.topic_id
        self.wanted = wanted
        #: The replica that the last scan found.
        self.replica: Replica | None = None
        #: The watermarks that the client was sent last; None: nothing yet, or an error.
        self.reported: Watermarks | None = None
        #: From the last scan until the answer: the partition's part of it, and its records.
        self.answer: PartitionData | None = None
        self.part: LogSlice | None = None

    def wake(self) -> None:
        """The replica has changed. It has removed this target from its waiters."""
        if self.replica is not None and not self.replica.is_open:
            self.replica = None  # otherwise an unused session would keep the log in memory
        self.targets.due[self] = None
        if self.targets.on_due is not None:
            self.targets.on_due()

    def leave_replica(self) -> None:
        if self.replica is not None:
            self.replica.waits.remove_fetch(self)


class FetchTargets:
    """The partitions that one client fetches, in its order.

    Invariant between two scans: a target is in `due`, or in `scanned`, or registered with its replica.
    """

    def __init__(self) -> None:
        self._by_key: dict[TargetKey, FetchTarget] = {}
        #: Targets for the next scan, in the order in which they get room in the answer. A target that had records goes
        #: to the end.
        self.due: dict[FetchTarget, None] = {}
        #: Targets that the next answer contains.
        self.to_report: dict[FetchTarget, None] = {}
        #: Targets of the last scan that are not watched yet.
        self.scanned: dict[FetchTarget, None] = {}
        self._is_watched = False
        #: Called when a target becomes due, and when there are no targets any more. None: no request waits for it.
        self.on_due: Callable[[], None] | None = None

    def __len__(self) -> int:
        return len(self._by_key)

    def add_topics(self, topics: Iterable[FetchTopic], *, by_id: bool) -> None:
        """Add or update the partitions that a request names. If it names one twice, the last one counts, as in
        Kafka."""
        targets, due = self._by_key, self.due
        for topic in topics:
            name = topic.topic_id.int if by_id else topic.topic
            for wanted in topic.partitions:
                key = (name, wanted.partition)
                target = targets.get(key)
                if target is None:
                    target = targets[key] = FetchTarget(self, topic, wanted)
                else:
                    target.wanted = wanted
                due[target] = None

    def remove_topics(self, topics: Iterable[ForgottenTopic], *, by_id: bool) -> None:
        for topic in topics:
            name = topic.topic_id.int if by_id else topic.topic
            for partition in topic.partitions:
                target = self._by_key.pop((name, partition), None)
                if target is not None:
                    self.due.pop(target, None)
                    target.leave_replica()

    def watch_early(self, target: FetchTarget) -> None:
        """Register a target of a scan that takes steps, if the scan found nothing: its replica may change before the
        scan ends."""
        self._is_watched = True
        if target not in self.due and target.replica is not None:
            target.replica.waits.add_fetch(target)

    def watch(self) -> None:
        """Register the targets of the last scan with their replicas."""
        self._is_watched = True
        for target in self.scanned:
            if target.replica is not None:
                target.replica.waits.add_fetch(target)
        self.scanned = {}

    def close(self) -> None:
        """Remove all targets, and unregister them from their replicas. A long poll that waits ends."""
        if self._is_watched:
            for target in self._by_key.values():
                target.leave_replica()
        # Targets refer back to this object. The cycles would be work for the garbage collector at every fetch.
        self._by_key.clear()
        self.due.clear()
        self.to_report.clear()
        self.scanned = {}
        if self.on_due is not None:
            self.on_due()


class FetchSession(FetchTargets):
    """The targets of one client, kept from request to request."""

    def __init__(self, now: float, *, by_id: bool) -> None:
        super().__init__()
        #: 0 until `FetchSessions` keeps it.
        self.session_id = 0
        self.by_id = by_id
        #: The session epoch that the next request has to name.
        self.epoch = next_epoch(INITIAL_EPOCH)
        self.created_s = now
        self.used_s = now
        #: Isolation level of the last request. Another level has another bound, so all targets become due.
        self.isolation_level = 0
        #: A request of this session is not answered yet.
        self.is_busy = False
        self.is_closed = False

    def start_request(self, isolation_level: int) -> None:
        self.is_busy = True
        if isolation_level != self.isolation_level:
            self.isolation_level = isolation_level
            self.due.update(dict.fromkeys(self._by_key.values()))

    def note_reported(self, targets: Iterable[FetchTarget]) -> None:
        """The client gets what was found about these targets. One that had records goes behind the others."""
        for target in targets:
            if target.part is not None and target in self.due:
                del self.due[target]
                self.due[target] = None
            target.reported = _watermarks(target.answer)
            target.answer = target.part = None

    def complete_request(self) -> None:
        """All of `to_report` is noted."""
        self._end_request()

    def abandon_request(self) -> None:
        """The client gets nothing of `to_report`: it is above its quota, or its connection is closed. It may go on with
        the session on another connection."""
        self.due.update(self.to_report)
        self._end_request()

    def _end_request(self) -> None:
        self.is_busy = False
        self.on_due = None
        self.to_report.clear()
        if not self.is_closed:
            self.watch()

    def close(self) -> None:
        self.is_closed = True
        super().close()


def _watermarks(answer: PartitionData | None) -> Watermarks | None:
    """The watermarks that the client knows after this answer. None: after an error or a divergence it gets them
    again."""
    assert answer is not None
    if answer.error_code or answer.diverging_epoch is not None:
        return None
    return answer.high_watermark, answer.last_stable_offset, answer.log_start_offset


def next_epoch(epoch: int) -> int:
    """The epoch after this one. 1 follows the largest, because INITIAL_EPOCH has a special meaning."""
    return 1 if epoch == _MAX_EPOCH else epoch + 1


class FetchSessions:
    """The sessions of a node, least recently used first.

    Invariants: there are at most `slots` sessions and `max_partitions` targets. `_sizes` has the number of targets of
    each session, and `_partitions` is their sum.
    """

    def __init__(self, slots: int, max_partitions: int, rng: random.Random) -> None:
        self._slots = slots
        self._max_partitions = max_partitions
        self._rng = rng
        self._sessions: dict[int, FetchSession] = {}
        self._sizes: dict[int, int] = {}
        self._partitions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def new_session(self, topics: Sequence[FetchTopic], now: float, *, by_id: bool) -> FetchSession | None:
        """A session for these partitions, which the caller adds, before `keep`. None: there is no room for it. `now`:
        loop time, seconds."""
        size = sum(len(topic.partitions) for topic in topics)
        return FetchSession(now, by_id=by_id) if size and self._make_room(size, now) else None

    def keep(self, session: FetchSession, now: float) -> None:
        """Keep a new session. Raises FETCH_SESSION_ID_NOT_FOUND, after which the client tries again: others have taken
        the room while the partitions were added."""
        if not self._make_room(len(session), now):
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        while not session.session_id or session.session_id in self._sessions:
            session.session_id = self._rng.getrandbits(31)
        self._sessions[session.session_id] = session
        self._update_size(session)

    def find(self, session_id: int, epoch: int, topics: Sequence[FetchTopic], *, by_id: bool) -> FetchSession:
        """The session of a request that names these partitions. It is busy from now on. The caller adds and removes
        partitions, and calls `resume`, or `close` if it does not come to that.

        Raises KafkaError, after which the client creates a new session: there is no such session (70); the epoch is not
        the next one, or the previous request is not answered yet (71); topics are named by id in a session with names,
        or by name in one with ids (106).
        """
        session = self._sessions.get(session_id)
        if session is None:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch or session.is_busy:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.by_id != by_id:
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        if (
            topics
            and self._partitions + sum(len(topic.partitions) for topic in topics) > self._max_partitions
        ):
            # There is room for the client's next session then, or it goes on without one.
            self.close(session_id)
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        session.is_busy = True
        return session

    def resume(self, session: FetchSession, now: float) -> bool:
        """The changes that a request makes to the session are done. False: no partition is left, and the session has
        ended. Raises FETCH_SESSION_ID_NOT_FOUND if it was evicted meanwhile."""
        if session.is_closed:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        session.epoch = next_epoch(session.epoch)
        session.used_s = now
        self._sessions[session.session_id] = self._sessions.pop(session.session_id)
        self._update_size(session)
        if not len(session):
            self.close(session.session_id)
            return False
        return True

    def close(self, session_id: int) -> None:
        """End the session, if there is one with this id."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._partitions -= self._sizes.pop(session_id)
            session.close()

    def _update_size(self, session: FetchSession) -> None:
        size = len(session)
        self._partitions += size - self._sizes.get(session.session_id, 0)
        self._sizes[session.session_id] = size

    def _make_room(self, size: int, now: float) -> bool:
        """Evict sessions until there is room for `size` targets. False: too few sessions may be evicted."""
        if size > self._max_partitions or not self._slots:
            return False
        while len(self._sessions) >= self._slots or self._partitions + size > self._max_partitions:
            evicted = self._evictable(size, now)
            if evicted is None:
                return False
            self.close(evicted.session_id)
        return True

    def _evictable(self, size: int, now: float) -> FetchSession | None:
        """A session that is not used any more, else the smallest old one that has fewer than `size` targets
        (KIP-227)."""
        unused = next(iter(self._sessions.values()))
        if now - unused.used_s > EVICTABLE_S:
            return unused
        old = (x for x in self._sessions.values() if now - x.created_s > EVICTABLE_S and len(x) < size)
        return min(old, key=len, default=None)
