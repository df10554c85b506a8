"""One partition on this node: where Raft group, log and producer state meet.

The group decides, the log keeps, and a replica carries facts and orders between them. Nothing here waits. Its parts:

- `append` (`leader_appends`) stages a batch. At the end of the loop iteration the batches are sent to the followers
  from memory (`sender`), and then written.
- `driver` tells the group every fact (a range arrived, a flush finished, a vote came in), and carries out its orders.
- `waits` answers clients when enough is committed.
- `log_start` decides what is deleted.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import structlog

from broker.config.topic_config import TopicConfig
from broker.metadata.ids import METADATA_TOPIC_ID
from broker.replication.leader_appends import LeaderAppends
from broker.replication.producer_state_maintenance import ProducerStateMaintenance
from broker.replication.raft_driver import RaftDriver
from broker.replication.replica_host import ReplicaHost
from broker.replication.sender import RangeSender
from broker.replication.waits import ReplicaWaits
from broker.replication.watermarks.compaction_bounds import CompactionBounds
from broker.replication.watermarks.log_start import LogStart
from protocol.errors import ErrorCode, KafkaError
from protocol.records.batch import TimestampType
from protocol.records.validate import RecordRules
from raft.group import Group
from raft.types import Configuration
from storage.disk import DiskFullError
from storage.errors import CorruptLogError
from storage.journal_records import Bounds
from storage.log import Log
from storage.log_types import GroupKey
from storage.producer_snapshot import Snapshot, load_producers, write_snapshot
from storage.producer_state import ProducerStates

logger = structlog.get_logger()

#: A member that has had, within so long, all that the leader had then is one to count on when members change.
CAUGHT_UP_S = 1.0
#: The active segment of an internal log may always grow to this size.
INTERNAL_ROLL_BYTES = 1 << 20


class Replica:
    """One partition's replica. Created with its log opened and its group restored."""

    def __init__(
        self,
        host: ReplicaHost,
        key: GroupKey,
        topic: str,
        log: Log,
        group: Group,
        producers: ProducerStates,
        config: TopicConfig,
        bounds: Bounds,
    ) -> None:
        """`bounds`: what the journal holds, durably."""
        self.host = host
        self.key = key
        self.topic = topic
        self.is_metadata = key.topic_id == METADATA_TOPIC_ID
        self.log = log
        self.traffic = host.traffic.of(topic)
        self.group = group
        self.producers = producers
        self._producer_maintenance = ProducerStateMaintenance(log)
        self._use_config(config)
        #: Offset of the next record; log.end_offset <= next_offset, the difference is staged for this turn.
        self.next_offset = log.end_offset
        #: First offset clients may not see yet. Never goes back while the process lives.
        self.high_watermark = log.start_offset
        self.log_start = LogStart(self)
        self.bounds = CompactionBounds(self, bounds)
        #: How many read the log in steps into what it says (`being_replayed`).
        self._replay_count = 0
        #: Until `stop`: a late flush or timer must not wake a replica that is gone.
        self.is_open = True
        self.waits = ReplicaWaits(self)
        self._sender = RangeSender(self)
        self.driver = RaftDriver(self, self._sender)
        appends = LeaderAppends(self, self._sender, self.driver)
        self._appends = appends
        #: See `LeaderAppends`. Asked for every batch: without a call in between.
        self.append = appends.append
        self.append_marker = appends.append_marker
        self.append_pending = appends.append_pending
        self.gaps = appends.gaps

    def reconfigure(self, config: TopicConfig) -> None:
        """The topic's settings have changed: they count from the next batch on, and for who waits now."""
        self._use_config(config)
        self.log.config = config.log_config
        self.waits.release_commits()

    def _use_config(self, config: TopicConfig) -> None:
        """The topic's settings, and what the produce path asks of them with every batch."""
        self.config = config
        self.group.min_durable = config.min_insync_replicas
        self.record_rules = RecordRules(
            config.is_compacted,
            TimestampType.LOG_APPEND_TIME if config.is_log_append_time else TimestampType.CREATE_TIME,
            config.message_timestamp_before_max_ms,
            config.message_timestamp_after_max_ms,
        )

    # -- what clients and handlers ask -------------------------------------------------------------------

    @property
    def partition(self) -> int:
        return self.key[1]

    @property
    def is_leader(self) -> bool:
        return self.group.leading is not None

    @property
    def leader_epoch(self) -> int:
        return self.group.term

    @property
    def is_serving(self) -> bool:
        """Leader whose first row is committed: only now may it answer for the partition."""
        return self.group.is_established

    @property
    def last_stable_offset(self) -> int:
        """Readers of committed data stop here: each transaction below has ended, and that is committed, or its records
        are deleted."""
        return max(self.producers.last_stable_offset(self.high_watermark), self.log_start.committed)

    @property
    def log_start_offset(self) -> int:
        """The committed log start: durable on a majority (replication.md section 6). -1 while a leader that has just
        won does not know what readers were shown."""
        return self.log_start.committed if self.log_start.establish_committed() else -1

    def check_leader_epoch(self, current_leader_epoch: int) -> None:
        """Of who reads. Fencing by KIP-320: -1 is no check."""
        if not (self.is_serving and self.log_start.establish_committed()):
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if current_leader_epoch >= 0 and current_leader_epoch != self.group.term:
            older = current_leader_epoch < self.group.term
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH if older else ErrorCode.UNKNOWN_LEADER_EPOCH)

    def may_become(self, configuration: Configuration) -> bool:
        """Whether a majority of these voters is there, where some go, and has the log start that readers were shown:
        otherwise, some changes later, a majority might be of those that lack it. Not while this leader does not know
        what that is."""
        group, log_start, voters = self.group, self.log_start, configuration.voters
        if len(voters) < len(group.configuration.voters):
            now = self.host.now()
            there = [voter for voter in voters if group.is_caught_up(voter, now, CAUGHT_UP_S)]
            if 2 * len(there) <= len(voters):
                return False
        return log_start.establish_committed() and group.majority_log_start(voters) >= log_start.committed

    @property
    def must_leave_reserve(self) -> bool:
        """What is left of the disk is not for this log, but for votes, rows and metadata (replication.md section 2)."""
        return self.host.space.is_low and not self.is_metadata

    def check_in_sync(self) -> None:
        """min.insync.replicas before the append; beyond a majority it also delays the answer."""
        required = self.config.min_insync_replicas
        if required > 1:
            if not self.is_serving:
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            in_sync = self.group.in_sync(self.host.now(), self.host.replica_lag_time_max_s)
            if len(in_sync) < required:
                raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)

    @property
    def producer_count(self) -> int:
        """Producers of which something is remembered."""
        return len(self.producers.entries) + len(self.gaps)

    # -- the log ----------------------------------------------------------------------------------------

    @contextmanager
    def being_replayed(self) -> Iterator[None]:
        """While the log is read in steps, and passes of compaction may come in between: tombstones and markers stay.
        One pass may remove what a tombstone deletes when that was read already, and the next one the tombstone before
        it is read."""
        self._replay_count += 1
        try:
            yield
        finally:
            self._replay_count -= 1

    @property
    def is_being_replayed(self) -> bool:
        return self._replay_count > 0

    def replace_log(self, log: Log) -> None:
        """A snapshot was installed: this log takes the place of the old one."""
        self.log = log
        self._use_producers(load_producers(log))
        self._producer_maintenance = ProducerStateMaintenance(log)
        self.next_offset = log.end_offset
        self.log_start.log_replaced()

    def log_grew(self, batches: int, *, may_block: bool = True) -> None:
        """So many batches were appended; nothing is flushed yet. `may_block`: only this flush is waited for."""
        self.log.note_aborted(self.producers.take_aborted())
        self._producer_maintenance.batches_appended(self.log, self.producers, batches)
        self.host.log_dirty(self, may_block=may_block)

    def reload(self) -> None:
        """Offsets and producers as the log has them: what was staged, or cut off, never was."""
        self.next_offset = self.log.end_offset
        self._producer_maintenance.log_truncated(self.log)
        try:
            self._use_producers(load_producers(self.log))
        except CorruptLogError as error:
            self.host.log_corrupt(self, error)

    def _use_producers(self, producers: ProducerStates) -> None:
        producers.keep_what_no_log_has(self.producers)
        self.producers = producers

    def drop_producers(self, count: int) -> int:
        """There are too many: forget so many, if so many may go, and all that was refused. Returns how many."""
        refused = len(self.gaps)
        self.gaps.clear()
        return refused + self.producers.drop_least_recent(max(0, count - refused), self.high_watermark)

    # -- watermarks and roles ----------------------------------------------------------------------------

    @property
    def durable_offset(self) -> int:
        """Everything below is durable here."""
        return self.offset_of(self.group.persisted_end)

    def offset_of(self, end_index: int) -> int:
        """The offset of the first record at or above an index end."""
        return self.log.lineage.offset_of_index(end_index)

    def commit_advanced(self) -> None:
        """The group's commit index has risen."""
        offset = self.offset_of(self.group.commit_end)
        assert offset >= self.high_watermark, "the high watermark never goes back"
        self.high_watermark = offset
        self.producers.forget_ended(offset)
        self._sender.release()
        if self._producer_maintenance.pending is not None:
            self._producer_maintenance.high_watermark_advanced(self.log, offset)
        self.log_start.advance_to_target()
        if self.waits.commit:
            self.waits.release_commits()
        self.waits.wake_fetches()
        self.host.commit_moved(self)

    def role_changed(self) -> None:
        """Role, term, known leader or establishment of the group are others than before."""
        if not self.is_leader:
            self._end_leadership()
            self._sender.discard()
        self.waits.wake_fetches()
        self.host.role_changed(self)

    def _end_leadership(self) -> None:
        """Nothing more is written as a leader. Everybody who waits for that is answered."""
        self._appends.discard()
        self.waits.fail(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.log_start.fail_waits(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def prepare_compaction(self, *, is_internal: bool) -> None:
        """What keeps a log from being compacted: its records lie in the active segment, or no snapshot of the producers
        lies behind them. An internal log is read as a whole by whoever begins to lead it, so its active segment is
        sealed before it is most of the log. Raises DiskFullError, CorruptLogError."""
        log = self.log
        is_large = is_internal and log.active_size_bytes >= max(INTERNAL_ROLL_BYTES, log.size_bytes / 2)
        if is_large or (log.is_due_to_roll(self.host.now_ms()) and not log.dirty()):
            log.roll()
        is_quiet = self.producers.end_offset == self.next_offset == log.end_offset == self.high_watermark
        if is_quiet and log.newest_snapshot_offset() < log.active_segment_base:
            write_snapshot(log, Snapshot.of(self.producers, log.active_aborted), self.high_watermark)

    # -- maintenance, and the end ----------------------------------------------------------------------

    def apply_retention(self) -> None:
        """The leader alone decides what is too old or too much, and only below the high watermark. What has only to
        do with this copy is done on every replica."""
        self._producer_maintenance.expire_producers(
            self.producers, self.host.now(), self.host.producer_expiration_s
        )
        self.gaps.expire(self.host.now())
        try:
            if self.log.is_due_to_roll(self.host.now_ms()) and not self.log.dirty():
                self.log.roll()
            if self.is_serving and self.config.is_deleted_by_retention:
                self.log_start.apply_retention()
            self.log_start.delete_segments(delete_active_from_bytes=1)
        except DiskFullError as error:
            logger.error(
                "not rolled: disk full", topic=self.topic, partition=self.partition, error=str(error)
            )
        except CorruptLogError as error:
            self.host.log_corrupt(self, error)

    def close(self, *, is_clean: bool) -> None:
        """After `stop`. A clean close leaves a snapshot where there is something to remember."""
        end_offset = self.log.end_offset
        if (
            is_clean
            and self.producers.entries
            and self.producers.end_offset == end_offset == self.high_watermark
        ):
            snapshot = Snapshot.of(self.producers, self.log.active_aborted)
            self._producer_maintenance.write_snapshot(self.log, snapshot, end_offset)
        self.log.close(is_clean=is_clean)

    def stop(self) -> None:
        """Answer everybody who still waits: this replica is gone (deleted, quarantined or shut down)."""
        self.is_open = False
        self._end_leadership()
        self.waits.wake_fetches()
