"""Where a replica's log starts: who raises it, when clients see that, and when the bytes below are deleted
(replication.md section 6, "Log start").

A log start is one number that only rises, so a deletion costs no log entry. It costs one record of the journal, which
is flushed together with everything else of the loop iteration. A new log start passes three stages:

- *target*: it was asked for by DeleteRecords, by retention, by the leader, by a voter, or by another replica that has
  it.
- *durable*: this replica's journal holds it (`Log.start_offset`).
- *committed*: a majority of the voters has it durably, so that no fail-over brings back what a client was told is
  deleted. Only the leader knows this, and only this is shown to clients.

Whole segments below are deleted after that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from broker.replication.waits import Acknowledged, AckQueue
from protocol.errors import ErrorCode, KafkaError
from storage.disk import DiskFullError
from storage.errors import CorruptLogError
from storage.producer_snapshot import Snapshot, ensure_snapshot, write_snapshot
from storage.retention import retention_start

if TYPE_CHECKING:
    from broker.replication.replica import Replica

logger = structlog.get_logger()

#: An active segment without a readable record is sealed and deleted at once from this size on. A smaller one waits for
#: the retention check: a new segment costs some flushes on the loop, and clients that purge do it again and again.
DELETE_ACTIVE_FROM_BYTES = 8 << 20


class LogStart:
    """The log start of one replica. An install may replace the replica's log meanwhile."""

    __slots__ = ("_inherited", "_is_established", "_journaled", "_replica", "_target", "_waits", "committed")

    #: Invariants: log.start_offset <= _journaled <= max(_target, log.start_offset); committed <= log.start_offset.

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        start_offset = replica.log.start_offset
        #: The committed log start, which clients are shown. Means something on a leader only: a replica that has just
        #: started does not know what the others have.
        self.committed = 0
        #: The highest start that anybody asked for. Nothing is deleted above the high watermark, or above what is
        #: durable here, so the log start may have to wait for either.
        self._target = start_offset
        #: The journal holds this, perhaps not durably yet.
        self._journaled = start_offset
        #: The highest log start among the voters that elected this replica.
        self._inherited = 0
        #: False while a new leader does not know the committed log start (`establish_committed`).
        self._is_established = True
        #: Deletions that wait until their log start is committed.
        self._waits = AckQueue()

    # -- what readers and deleters ask -------------------------------------------------------------------

    def establish_committed(self) -> bool:
        """Whether no reader was ever shown a log start above `committed`. Asked before any reader is answered.

        A new leader knows the highest log start of the voters that elected it, but not whether that was committed. If
        it was, some readers were already told that the records below are deleted; if it was not, they need not stay
        deleted. So the leader answers no reader until a majority, itself included, has that log start. Mostly that is
        so once its first row is committed, unless those who acknowledged the row lacked it, too. Schedule: of five,
        A, B and C have deleted, and A shows it. A dies. D, which has not deleted, wins with B and E. It knows of a
        majority only when E has followed, too."""
        if not self._is_established:
            self.advance_to_target()  # what was in the way, a full disk, may be gone
            self.advance_committed()
            self._is_established = self.committed >= self._inherited
        return self._is_established

    def delete_records(self, offset: int) -> int:
        """Have everything below `offset` deleted (DeleteRecords; -1: all that clients may see). Returns the offset for
        which to `wait_committed`. Raises KafkaError: not leader, topic without the policy, offset out of range."""
        replica = self._replica
        replica.check_leader_epoch(-1)
        if not replica.config.is_deleted_by_retention:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, "the topic's cleanup.policy is not delete")
        if offset == -1:
            offset = replica.high_watermark
        if not 0 <= offset <= replica.high_watermark:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        self.raise_target(offset)
        return offset

    def wait_committed(self, offset: int, waiter: Acknowledged, slot: int) -> None:
        """Call the waiter when no fail-over brings back what is below `offset`."""
        if offset <= self.committed:
            waiter.partition_done(slot, ErrorCode.NONE)
        else:
            self._waits.add(offset, waiter, slot)

    def fail_waits(self, error: ErrorCode) -> None:
        self._waits.fail(error)

    # -- facts -------------------------------------------------------------------------------------------

    def inherit(self, offset: int) -> None:
        """This replica won an election, and its voters had log starts up to this one."""
        self._inherited = offset
        self._is_established = False
        self.raise_target(offset)
        self.advance_committed()

    def raise_target(self, offset: int) -> None:
        """Somebody asks for this log start, or has it: every replica adopts the highest, so that all become equal."""
        if offset > self._target:
            self._target = offset
            self.advance_to_target()

    def advance_to_target(self) -> None:
        """Raise the log start as far towards the target as possible. Called whenever more is committed, or durable."""
        if self._target <= self._journaled:
            return
        replica = self._replica
        offset = min(self._target, replica.high_watermark, replica.log.flushed_end.end_offset)
        if offset > self._journaled:
            self._journaled = offset
            replica.host.persist_log_start(replica, offset)

    def persisted(self, offset: int) -> None:
        """The journal record with this log start is durable."""
        replica = self._replica
        log = replica.log
        if offset <= log.start_offset:
            return  # a log that begins above it was installed meanwhile
        log.set_start_offset(offset)
        group = replica.group
        group.watermarks = group.watermarks._replace(log_start=offset)
        if replica.is_leader:
            self.advance_committed()
        else:
            self.delete_segments()

    def log_replaced(self) -> None:
        """An installed log took the place of the old one. It begins above all that the old one had committed."""
        assert self._journaled <= self._replica.log.start_offset
        self._journaled = self._replica.log.start_offset

    def advance_committed(self) -> None:
        """On the leader: its own log start became durable, or a follower's did."""
        replica = self._replica
        own = replica.log.start_offset
        if self.committed < own:
            committed = min(replica.group.majority_log_start(), own)
            if committed > self.committed:
                self.committed = committed
                self._waits.release(committed)
                replica.waits.wake_fetches()
                self.delete_segments()

    # -- deleting bytes ----------------------------------------------------------------------------------

    def apply_retention(self) -> None:
        """On the leader, which alone decides what is too old or too much, and only below the high watermark."""
        replica = self._replica
        config, log = replica.config, replica.log
        self.raise_target(
            retention_start(
                log.segments(),
                log.start_offset,
                now_ms=replica.host.now_ms(),
                retention_ms=config.retention_ms,
                retention_bytes=config.retention_bytes,
                up_to_offset=replica.high_watermark,
            )
        )

    def delete_segments(self, *, delete_active_from_bytes: int = DELETE_ACTIVE_FROM_BYTES) -> None:
        """Delete the segments that hold no readable record. On the leader, a record is readable above the committed log
        start. The active segment is deleted, too, if it holds so many bytes."""
        replica = self._replica
        log = replica.log
        readable = self.committed if replica.is_leader else log.start_offset
        try:
            if readable == replica.next_offset and log.active_segment_bytes >= delete_active_from_bytes:
                # No record is left. The producers' state is in memory: writing it now saves a replay.
                write_snapshot(log, Snapshot.of(replica.producers), replica.high_watermark)
                log.roll()
            end_offset = log.whole_segments_end(readable)
            if end_offset == log.first_stored_offset:
                return
            ensure_snapshot(log, end_offset, replica.high_watermark)
            topic, partition = replica.topic, replica.partition
            logger.info("deleted", topic=topic, partition=partition, below=end_offset, cause=replica.key)
            log.delete_segments(end_offset)
            replica.group.install_offset = log.install_offset
        except DiskFullError as error:
            # A snapshot, or a new segment, needs room; until there is some, the old ones stay.
            logger.error(
                "not deleted: disk full",
                topic=replica.topic,
                partition=replica.partition,
                error=str(error),
                cause=replica.key,
            )
        except CorruptLogError as error:
            replica.host.log_corrupt(replica, error)
