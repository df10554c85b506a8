"""All replicas of a node: opening and closing them, their shared timers, flush rounds and messages."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from functools import partial
from uuid import UUID

import structlog

from broker.config.layers import LiveSettings
from broker.config.topic_config import TopicConfig
from broker.environment import Clock
from broker.replication import wire
from broker.replication.disk_space import DiskSpace
from broker.replication.events import Peers, ReplicaEvents
from broker.replication.log_opener import LogOpener, NewReplica
from broker.replication.producer_limit import ProducerLimit
from broker.replication.ranges import MAX_APPEND_BYTES, check_own_range
from broker.replication.replica import Replica
from broker.replication.snapshot_install import SnapshotInstalls
from broker.replication.topic_traffic import TrafficByTopic
from broker.replication.watermarks.bounds import DurableBounds
from broker.replication.watermarks.bounds_exchange import BoundsExchange
from broker.replication.watermarks.log_start_exchange import LogStartExchange
from broker.scheduling.ticks import SLOW_TICK_S, Ticks
from broker.scheduling.timers import TimerHeap
from broker.scheduling.turn import Turn, Writer
from protocol import peer
from protocol.errors import ErrorCode, KafkaError
from raft.group import Group
from raft.types import Configuration, HardState, ReplicaId, Timing, Watermarks
from storage.disk import Disk
from storage.errors import CorruptLogError
from storage.group_commit import FlushRounds
from storage.journal import Journal
from storage.journal_records import Forget, Quarantine, Vote, VotedFor
from storage.log import Log
from storage.log_types import FlushedEnd, GroupKey
from storage.producer_state import ProducerStates

logger = structlog.get_logger()

#: How long, and up to how many bytes, small appends are batched for deferred followers, which the majority does not
#: need. The copy beyond the majority lags by this much; in return it costs next to nothing.
APPEND_BATCH_S = 0.02
APPEND_BATCH_BYTES = MAX_APPEND_BYTES
#: A log to which nothing is appended for so long, or twice, is trimmed.
QUIET_S = 1.0


class Replicas:
    """The replicas of this node, by group and by name. Implements `broker.replication.replica_host.ReplicaHost`."""

    def __init__(
        self,
        peers: Peers,
        events: ReplicaEvents,
        settings: LiveSettings,
        ticks: Ticks,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        disk: Disk,
        journal: Journal,
        rounds: FlushRounds,
        turn: Turn,
        rng: random.Random,
        timing: Timing,
        node_id: int,
        directory_id: UUID,
        is_clean_start: bool,
        replica_lag_time_max_s: float,
    ) -> None:
        self._peers = peers
        self._events = events
        self._settings = settings
        self._loop = loop
        self._disk = disk
        self._journal = journal
        self._rounds = rounds
        self._turn = turn
        self._rng = rng
        self._timing = timing
        self._bounds = DurableBounds(journal)
        self._logs = LogOpener(
            disk, journal, self._bounds, node_id, directory_id.bytes, is_clean_start=is_clean_start
        )
        self.replica_lag_time_max_s = replica_lag_time_max_s
        #: False while the node stops.
        self.may_campaign = True
        self._timers = TimerHeap(loop)
        self.by_key: dict[GroupKey, Replica] = {}
        #: ... under (topic id as a number, partition), for what peers send: a UUID is hashed and compared in Python.
        self.by_number: dict[tuple[int, int], Replica] = {}
        #: ... under (topic, partition), which clients name. Not the metadata log: only the controller writes there.
        self.by_name: dict[tuple[str, int], Replica] = {}
        #: ... and by the log they own, for the flush rounds.
        self.by_log: dict[Log, Replica] = {}
        #: Replicas that may have a commit index to tell: looked at by the slow tick.
        self._commits_to_tell: dict[Replica, None] = {}
        self._is_telling = False
        self._log_start_exchange = LogStartExchange(loop, peers.send_to)
        self.bounds_exchange = BoundsExchange(
            loop, self.by_key, self._bounds, self.after_flush_of, peers.send_to, ticks
        )
        self.persist_bounds = self.bounds_exchange.persist
        installs = SnapshotInstalls(self, disk, journal, rounds, self._bounds, self._discard_log)
        self.send_snapshot = installs.send
        self.install_snapshot = installs.install
        #: Replicas with deferred followers that lack something, until the timer that is set while there are any.
        self._deferred: dict[Replica, None] = {}
        #: Replicas whose log was found corrupt in this turn.
        self._quarantining: dict[GroupKey, None] = {}
        self.now: Callable[[], float] = loop.time
        self.traffic = TrafficByTopic()
        self.space = DiskSpace(disk, journal, settings, loop.time, self.by_key, self.send)
        self.now_ms: Callable[[], int] = clock.now_ms
        self.note_writer: Callable[[Writer], None] = turn.add_writer
        self.producer_limit = ProducerLimit(self.by_key, settings, ticks)
        ticks.every(SLOW_TICK_S, self._tick)
        ticks.every(QUIET_S, self._trim_quiet_logs)
        ticks.every(settings.config.log_retention_check_interval_ms / 1000, self._apply_retention)

    # -- opening and closing -----------------------------------------------------------------------------

    def create_logs(self, wanted: Sequence[NewReplica]) -> dict[GroupKey, Log]:
        """As `LogOpener.create_logs`."""
        return self._logs.create_logs(wanted)

    def open(
        self,
        key: GroupKey,
        topic: str,
        config: TopicConfig,
        founding: Configuration | None,
        *,
        is_only_copy: bool = False,
        begun: Log | None = None,
    ) -> Replica | None:
        """Open the replica on its log, as `LogOpener.open` finds or creates it, or on what `create_logs` made just now
        (`begun`). None: its log must not be used, and is the only copy."""
        if begun is not None:
            opened: tuple[Log, ProducerStates] | None = begun, ProducerStates()
        else:
            opened = self._logs.open(key, topic, config.log_config, founding, is_only_copy=is_only_copy)
        if opened is None:
            return None
        log, producers = opened
        self._rounds.log_opened(log)
        self_id, hard_state = self._logs.identity(key)
        bounds = self._bounds.of(key)
        group = Group(
            self_id,
            hard_state,
            [wire.row_from_log(row) for row in log.lineage.rows],
            log.end_index,
            # What is deleted was committed. A leader that missed this replica's last answers resumes below it.
            log.lineage.index_before(log.start_offset),
            watermarks=Watermarks(log.start_offset, bounds.mtro, bounds.mxro),
            install_offset=log.install_offset,
            timing=self._timing,
            rng=self._rng,
        )
        replica = Replica(self, key, topic, log, group, producers, config, bounds)
        self.by_key[key] = self.by_number[(key.topic_id.int, key.partition)] = replica
        if not replica.is_metadata:
            self.by_name[(topic, key.partition)] = replica
        self.timer_changed(replica)
        self.role_changed(replica)
        return replica

    def close(self, replica: Replica, *, is_clean: bool) -> None:
        del self.by_key[replica.key]
        del self.by_number[(replica.key.topic_id.int, replica.partition)]
        self.by_name.pop((replica.topic, replica.partition), None)
        self._commits_to_tell.pop(replica, None)
        self.space.forget(replica)
        self._log_start_exchange.discard_replica(replica)
        self.bounds_exchange.discard_replica(replica)
        for closed in self._events.closed:
            closed(replica.key)
        self._timers.set(replica.driver, None)
        replica.stop()
        self._discard_log(replica.log)
        replica.close(is_clean=is_clean)

    def _discard_log(self, log: Log) -> None:
        self._rounds.discard_log(log)
        self.by_log.pop(log, None)

    def forget_group(self, key: GroupKey) -> None:
        """The topic is deleted: the journal forgets the group."""
        self._journal.append(Forget(key))
        self._logs.forget_group(key)
        self.after_flush(partial(self._forgotten, key))

    def _forgotten(self, key: GroupKey) -> None:
        for forgotten in self._events.forgotten:
            forgotten(key)

    def stop_campaigning(self) -> None:
        """This node is about to stop: it takes no leadership any more, by election or by transfer."""
        self.may_campaign = False

    def close_all(self, *, is_clean: bool) -> None:
        for replica in list(self.by_key.values()):
            self.close(replica, is_clean=is_clean)
        self._timers.close()

    # -- broker.replication.replica_host.ReplicaHost ------------------------------------------------------

    def log_dirty(self, replica: Replica, *, may_block: bool = True) -> None:
        self.by_log[replica.log] = replica
        self._rounds.mark_dirty(replica.log, may_block=may_block)
        self._turn.schedule()

    def prepare_reply(self, log: Log, end: FlushedEnd) -> Callable[[], None] | None:
        """The loop is about to wait for a flush (called by the rounds)."""
        replica = self.by_log.get(log)
        return None if replica is None else replica.driver.prepare_reply(end.end_index)

    def log_durable(self, log: Log, end: FlushedEnd) -> None:
        """A flush round finished (called by the rounds)."""
        replica = self.by_log.get(log)
        if replica is not None:
            replica.driver.persisted(end.end_index)

    def persist_vote(self, replica: Replica, state: HardState) -> None:
        voted = None if state.voted_for is None else VotedFor(*state.voted_for)
        self._journal.append(Vote(replica.key, state.term, voted))
        self.after_flush_of(replica, partial(replica.driver.hard_state_persisted, state))

    def persist_log_start(self, replica: Replica, offset: int) -> None:
        self._bounds.raise_log_start(replica.key, offset)
        self.after_flush_of(replica, partial(self._log_start_persisted, replica, offset))

    def _log_start_persisted(self, replica: Replica, offset: int) -> None:
        replica.log_start.persisted(offset)
        self._log_start_exchange.add_replica(replica)
        if replica.is_leader:
            self._note_commit(replica)  # the slow tick, for who cannot be told now

    def recorded_end(self, replica: Replica) -> int:
        """How far its log is durable, by the journal."""
        state = self._journal.state(replica.key)
        return 0 if state is None or state.flushed_end is None else state.flushed_end.end_offset

    def discard_ordered(self, replica: Replica, leader: ReplicaId, term: int) -> None:
        """The leader has found that this log is no legitimate copy (L6). A voter, as far as it knows, does not believe
        that: if it is a learner by now, it will hear of it, and be told again."""
        group = replica.group
        is_believed = term == group.term and leader == group.leader
        if is_believed and group.self_id in group.configuration.learners:
            logger.warning(
                "others removed what this log lacks", topic=replica.topic, partition=replica.partition
            )
            self._condemn(replica)

    def truncate(self, replica: Replica, to_index: int, known_commit: int) -> bool:
        for truncating in self._events.truncating:
            truncating(replica, to_index)
        try:
            self._rounds.truncate(replica.log, to_index, known_commit)
        except CorruptLogError as error:
            # At once: the group has cut entries that the log still has, so the replica must see no other fact.
            self.log_corrupt(replica, error)
            self._quarantine(replica)
            return False
        return True

    def send(self, to: ReplicaId, message: peer.PeerMessage) -> None:
        self._peers.send_to((to.node_id, to.directory_id), message)

    def prepare(self, to: ReplicaId, message: peer.PeerMessage) -> Callable[[], None] | None:
        return self._peers.prepare_to((to.node_id, to.directory_id), message)

    def after_flush(self, action: Callable[[], object]) -> None:
        self._rounds.after_flush(action)
        self._turn.schedule()

    def after_flush_of(self, replica: Replica, action: Callable[[], None]) -> None:
        self.after_flush(lambda: action() if replica.is_open else None)

    def timer_changed(self, replica: Replica) -> None:
        self._timers.set(replica.driver, replica.group.deadline)

    def role_changed(self, replica: Replica) -> None:
        for changed in self._events.role_changed:
            changed(replica)

    def marker_appended(
        self, replica: Replica, producer_id: int, end_offset: int, *, is_commit: bool
    ) -> None:
        for appended in self._events.marker_appended:
            appended(replica, producer_id, end_offset, is_commit)

    def commit_moved(self, replica: Replica) -> None:
        if replica.is_leader:
            self._note_commit(replica)
        for advanced in self._events.commit_advanced:
            advanced(replica)

    def range_refused(self, replica: Replica, follower: ReplicaId, start_index: int) -> None:
        logger.error(
            "a follower found our range corrupt",
            topic=replica.topic,
            partition=replica.partition,
            follower=follower.node_id,
            start_index=start_index,
        )
        try:
            check_own_range(replica.log, start_index)
        except CorruptLogError as error:
            self.log_corrupt(replica, error)

    def log_corrupt(self, replica: Replica, error: CorruptLogError) -> None:
        """Nothing more is said on the strength of this log: resign, mark it durably, have it built anew."""
        if replica.key not in self._quarantining:
            logger.critical("log is corrupt", error=str(error), is_leader=replica.is_leader)
            self._condemn(replica)

    def _condemn(self, replica: Replica) -> None:
        if replica.key not in self._quarantining:
            self._quarantining[replica.key] = None
            self._loop.call_soon(self._quarantine, replica)

    def _quarantine(self, replica: Replica) -> None:
        """In a loop iteration of its own, where the replica goes on with its work after it has found the corruption."""
        is_open = replica.is_open
        if is_open:
            replica.driver.quorum_lost()
            self._journal.append(Quarantine(replica.key, True))
            if not self.space.may_flush_journal():
                # The record waits for room, and whatever would be acknowledged here waits behind it.
                self.after_flush(partial(self._loop.call_soon, self._quarantine, replica))
                return
            self._journal.flush()
            self.close(replica, is_clean=False)
        # Not before: a replica that resigns, or closes, may come upon the damage once more.
        self._quarantining.pop(replica.key, None)
        if is_open:
            for quarantined in self._events.quarantined:
                quarantined(replica)

    def note_deferred(self, replica: Replica) -> None:
        if not self._deferred:
            self._loop.call_later(APPEND_BATCH_S, self._send_deferred)
        self._deferred[replica] = None

    def _send_deferred(self) -> None:
        deferred, self._deferred = self._deferred, {}
        for replica in deferred:
            if replica.is_open:
                replica.driver.send_deferred()

    # -- ticks -------------------------------------------------------------------------------------------

    def _tick(self, now: float) -> None:
        self.tell_commits()
        self.space.tick(now)

    def check_space(self) -> None:
        """Raise KafkaError where clients' records would use the reserve for votes, rows (replication.md section 2)."""
        if self.space.is_low:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "less than log.min.free.bytes is left")

    @property
    def producer_expiration_s(self) -> float:
        return self._settings.config.producer_id_expiration_ms / 1000

    def reply_arrived(self, replica: Replica) -> None:
        """A follower may be back, without knowing the commit index of an idle group: the slow tick looks."""
        if replica.is_leader:
            self._note_commit(replica)

    def _note_commit(self, replica: Replica) -> None:
        """Followers may lack the commit index. What was created must be seen on every broker at once, so metadata does
        not wait for the slow tick."""
        self._commits_to_tell[replica] = None
        if replica.is_metadata and not self._is_telling:
            self._is_telling = True
            self._loop.call_soon(self.tell_commits)

    def tell_commits(self) -> None:
        """Slow tick: followers learn the last commit index and log start although nothing else is sent to them."""
        self._is_telling = False
        for replica in list(self._commits_to_tell):
            if not replica.driver.send_commits():
                del self._commits_to_tell[replica]

    def _trim_quiet_logs(self, now: float) -> None:
        """See `Log.trim_if_quiet`."""
        for log in self.by_log:
            log.trim_if_quiet()

    def _apply_retention(self, now: float) -> None:
        for replica in list(self.by_key.values()):
            replica.apply_retention()
