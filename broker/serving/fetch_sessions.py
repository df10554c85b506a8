"""Fetch sessions (KIP-227): what a client fetches is kept between its requests, so that a request names, a look visits
and an answer tells only what has changed.

Values: no connection, no waiting. `FetchTargets` is what one client fetches, for one request or for a session;
`FetchSessions` is the bounded cache of sessions. broker.handlers.fetch looks at the targets and answers.

Between two looks each target is
- due: the next look visits it. It is new, or was named again, or woken by its replica, or had records or an error;
- in `looked_at`: the last look found nothing for it;
- watched: the same, and its replica wakes it once when that may have changed.
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

#: Session epochs with a meaning of their own: begin a session, and have none. Ordinary ones are above.
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
_MAX_EPOCH = 2**31 - 1
#: From this version on a request names topics by their ids.
TOPIC_IDS_VERSION = 13
#: A session gives way to another one that has more partitions when it is so old, and to any when it was not used for so
#: long (Kafka: min.incremental.fetch.session.eviction.ms, which is no setting there either).
EVICTABLE_S = 120.0
#: Partitions of all sessions together: some 100 MB. Kafka has no such bound; a request of 8 MiB names 300,000.
MAX_PARTITIONS = 200_000

#: Topic name, or the number of its id from version 13 on; partition.
TargetKey = tuple[str | int, int]
#: High watermark, last stable offset, log start.
Watermarks = tuple[int, int, int]


class FetchTarget:
    """One partition as one client fetches it; what a replica wakes."""

    __slots__ = ("answer", "part", "replica", "targets", "told", "topic", "topic_id", "wanted")

    def __init__(self, targets: FetchTargets, topic: FetchTopic, wanted: FetchPartition) -> None:
        self.targets = targets
        self.topic = topic.topic
        self.topic_id = topic.topic_id
        self.wanted = wanted
        #: Where it was found last.
        self.replica: Replica | None = None
        #: What the client was told last; None: nothing, or an error.
        self.told: Watermarks | None = None
        #: Of the last look, until answered: what there is to tell, and the records of it.
        self.answer: PartitionData | None = None
        self.part: LogSlice | None = None

    def wake(self) -> None:
        """The replica moved. It has forgotten this target."""
        if self.replica is not None and not self.replica.is_open:
            self.replica = None  # its log would stay in memory for as long as a session that nobody uses
        self.targets.due[self] = None
        if self.targets.woken is not None:
            self.targets.woken()

    def leave_replica(self) -> None:
        if self.replica is not None:
            self.replica.waits.remove_fetch(self)


class FetchTargets:
    """What one client fetches, in its order.

    Invariant, between two looks: a target is due, or in `looked_at`, or registered with its replica.
    """

    def __init__(self) -> None:
        self._by_key: dict[TargetKey, FetchTarget] = {}
        #: To be looked at, in the order in which they may bring records: who brought some goes to the end.
        self.due: dict[FetchTarget, None] = {}
        #: Whose answer has something to tell.
        self.telling: dict[FetchTarget, None] = {}
        #: By the last look, and not watched yet.
        self.looked_at: dict[FetchTarget, None] = {}
        self._is_watched = False
        #: Called when a target becomes due, and when none is left; None while nobody waits for that.
        self.woken: Callable[[], None] | None = None

    def __len__(self) -> int:
        return len(self._by_key)

    def name(self, topics: Iterable[FetchTopic], *, by_id: bool) -> None:
        """Take up what a request names. A partition that is named twice counts as it was named last, as in Kafka."""
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

    def forget_topics(self, topics: Iterable[ForgottenTopic], *, by_id: bool) -> None:
        for topic in topics:
            name = topic.topic_id.int if by_id else topic.topic
            for partition in topic.partitions:
                target = self._by_key.pop((name, partition), None)
                if target is not None:
                    self.due.pop(target, None)
                    target.leave_replica()

    def watch(self) -> None:
        """Have the replicas wake those of the last look."""
        self._is_watched = True
        for target in self.looked_at:
            if target.replica is not None:
                target.replica.waits.add_fetch(target)
        self.looked_at = {}

    def close(self) -> None:
        """Nothing is left, which ends a poll that waits; no replica wakes it any more."""
        if self._is_watched:
            for target in self._by_key.values():
                target.leave_replica()
        # Targets refer back to this: left so, they would be work for the garbage collector at every fetch.
        self._by_key.clear()
        self.due.clear()
        self.telling.clear()
        self.looked_at = {}
        if self.woken is not None:
            self.woken()


class FetchSession(FetchTargets):
    """The targets of one client from request to request."""

    def __init__(self, session_id: int, now: float, *, by_id: bool) -> None:
        super().__init__()
        self.session_id = session_id
        self.by_id = by_id
        #: What the next request has to say.
        self.epoch = next_epoch(INITIAL_EPOCH)
        self.created_s = now
        self.used_s = now
        #: Of the last request: another one has other bounds.
        self.isolation_level = 0
        #: Until the request that is under way is answered.
        self.is_busy = False
        self.is_closed = False

    def start_request(self, isolation_level: int) -> None:
        self.is_busy = True
        if isolation_level != self.isolation_level:
            self.isolation_level = isolation_level
            self.due.update(dict.fromkeys(self._by_key.values()))

    def answered(self) -> None:
        """The client is told what `telling` says. Who brought records lets the others go first next time."""
        for target in self.telling:
            if target.part is not None and target in self.due:
                del self.due[target]
                self.due[target] = None
            target.told = _watermarks(target.answer)
            target.answer = target.part = None
        self._rest()

    def given_up(self) -> None:
        """The client is told nothing: it is above its quota, or gone and may come back over another connection."""
        self.due.update(self.telling)
        self._rest()

    def _rest(self) -> None:
        self.is_busy = False
        self.woken = None
        self.telling.clear()
        if not self.is_closed:
            self.watch()

    def close(self) -> None:
        self.is_closed = True
        super().close()


def _watermarks(answer: PartitionData | None) -> Watermarks | None:
    """What an answer tells that stays true. Behind an error or a divergence all is told again."""
    assert answer is not None
    if answer.error_code or answer.diverging_epoch is not None:
        return None
    return answer.high_watermark, answer.last_stable_offset, answer.log_start_offset


def next_epoch(epoch: int) -> int:
    """They begin again behind the largest, and never become INITIAL_EPOCH."""
    return 1 if epoch == _MAX_EPOCH else epoch + 1


class FetchSessions:
    """The sessions of a node, least recently used first.

    Invariants: at most `slots` sessions and MAX_PARTITIONS targets; `_sizes` has the targets of each, `_partitions`
    their sum.
    """

    def __init__(self, slots: int, rng: random.Random) -> None:
        self._slots = slots
        self._rng = rng
        self._sessions: dict[int, FetchSession] = {}
        self._sizes: dict[int, int] = {}
        self._partitions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(self, topics: Sequence[FetchTopic], now: float, *, by_id: bool) -> FetchSession | None:
        """A new session of these partitions; None where there is no room for it."""
        size = sum(len(topic.partitions) for topic in topics)
        if not size or not self._make_room(size, now):
            return None
        session_id = 0
        while not session_id or session_id in self._sessions:
            session_id = self._rng.getrandbits(31)
        session = FetchSession(session_id, now, by_id=by_id)
        session.name(topics, by_id=by_id)
        self._sessions[session_id] = session
        self._count(session)
        return session

    def resume(
        self,
        session_id: int,
        epoch: int,
        topics: Sequence[FetchTopic],
        forgotten: Sequence[ForgottenTopic],
        now: float,
        *,
        by_id: bool,
    ) -> FetchSession | None:
        """The session with what a request changes of it. None: nothing is left of it, and it has ended.

        Raises KafkaError: no such session (70), not its next epoch (71), topics named in the other way (106). The
        client then begins a new one. Out of order is also a request that comes before the last one is answered.
        """
        session = self._sessions.get(session_id)
        if session is None:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch or session.is_busy:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.by_id != by_id:
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        if self._partitions + sum(len(topic.partitions) for topic in topics) > MAX_PARTITIONS:
            self.close(session_id)  # the next one finds room, or the client goes on without
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        session.name(topics, by_id=by_id)
        session.forget_topics(forgotten, by_id=by_id)
        session.epoch = next_epoch(epoch)
        session.used_s = now
        self._sessions[session_id] = self._sessions.pop(session_id)
        self._count(session)
        if not len(session):
            self.close(session_id)
            return None
        return session

    def close(self, session_id: int) -> None:
        """End it, if there is one."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._partitions -= self._sizes.pop(session_id)
            session.close()

    def _count(self, session: FetchSession) -> None:
        size = len(session)
        self._partitions += size - self._sizes.get(session.session_id, 0)
        self._sizes[session.session_id] = size

    def _make_room(self, size: int, now: float) -> bool:
        """Whether there is room for so many targets, after others gave way if need be."""
        if size > MAX_PARTITIONS or not self._slots:
            return False
        while len(self._sessions) >= self._slots or self._partitions + size > MAX_PARTITIONS:
            giving_way = self._evictable(size, now)
            if giving_way is None:
                return False
            self.close(giving_way.session_id)
        return True

    def _evictable(self, size: int, now: float) -> FetchSession | None:
        """One that nobody uses, else the smallest of the old ones if it is smaller (KIP-227)."""
        unused = next(iter(self._sessions.values()))
        if now - unused.used_s > EVICTABLE_S:
            return unused
        old = (x for x in self._sessions.values() if now - x.created_s > EVICTABLE_S and len(x) < size)
        return min(old, key=len, default=None)
