"""Where a replica's log starts: who raises it, when clients see that, and when the bytes below go (replication.md
section 6, "Log start").

A log start is one number that only rises, so a deletion costs no log entry: a record in the journal, flushed together
with everything else of the turn. It is *wanted* (by DeleteRecords, retention, the leader, a voter, another replica that
has it already), then *durable* here (`Log.start_offset`), then *exposed* by the leader: a majority has it, so that no
fail-over brings back what a client was told is deleted. The bytes go by whole segments, later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from broker.replication.waits import Acknowledged, AckQueue
from protocol.errors import ErrorCode
from storage.disk import DiskFullError
from storage.errors import CorruptLogError
from storage.producer_snapshot import ensure_snapshot, write_snapshot

if TYPE_CHECKING:
    from broker.replication.replica import Replica

logger = structlog.get_logger()

#: An active segment of which everything is deleted is given up at once from this size on; a smaller one is left to the
#: retention check. A new segment costs some flushes on the loop, and who purges does it again and again.
GIVE_UP_BYTES = 8 << 20


class LogStart:
    """Of one replica, whose log may be replaced in the meantime."""

    __slots__ = ("_granted", "_is_settled", "_journaled", "_replica", "_waits", "_wanted", "exposed")

    #: Invariants: log.start_offset <= _journaled <= max(_wanted, log.start_offset); exposed <= log.start_offset.

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        start_offset = replica.log.start_offset
        #: What clients were shown last, persisted by a majority. Means something on a leader; a replica that has just
        #: started does not know what the others have.
        self.exposed = 0
        #: The highest start that anybody asked for. Of what is not committed and durable here nothing is deleted yet.
        self._wanted = start_offset
        #: In the journal, perhaps not flushed yet.
        self._journaled = start_offset
        #: The highest that the voters had when this replica won.
        self._granted = 0
        self._is_settled = True
        #: Deletions that wait to be exposed.
        self._waits = AckQueue()

    # -- what readers and deleters ask -------------------------------------------------------------------

    def settle(self) -> bool:
        """Whether no reader was ever shown more than `exposed`: asked before any is answered.

        A leader that has just won was told of the highest start of its voters, and not whether that had been exposed:
        what is below may be deleted for some readers, and what is above need not stay deleted. It answers nobody until
        a majority, itself included, has it: at once when its first row is committed, unless who acknowledged that
        lacked it, too. Schedule: of five, A, B and C have deleted, and A shows it; A dies; D, which has not, wins with
        B and E and knows of a majority only when E has followed, too.
        """
        if not self._is_settled:
            self.take()  # what was in the way, a full disk, may be gone
            self.expose()
            self._is_settled = self.exposed >= self._granted
        return self._is_settled

    def wait_exposed(self, offset: int, waiter: Acknowledged, slot: int) -> None:
        """Call the waiter when no fail-over brings back what is below `offset`."""
        if offset <= self.exposed:
            waiter.partition_done(slot, ErrorCode.NONE)
        else:
            self._waits.add(offset, waiter, slot)

    def fail_waits(self, error: ErrorCode) -> None:
        self._waits.fail(error)

    # -- facts -------------------------------------------------------------------------------------------

    def granted(self, offset: int) -> None:
        """This replica won, and the voters had a log start up to here."""
        self._granted = offset
        self._is_settled = False
        self.want(offset)
        self.expose()

    def want(self, offset: int) -> None:
        """Somebody asks for this log start, or has it: another replica's is adopted, so that all become equal."""
        if offset > self._wanted:
            self._wanted = offset
            self.take()

    def take(self) -> None:
        """Raise the log start as far as is wanted and possible: again whenever more is committed, or durable."""
        if self._wanted <= self._journaled:
            return
        replica = self._replica
        offset = min(self._wanted, replica.high_watermark, replica.log.flushed_end.end_offset)
        if offset > self._journaled:
            self._journaled = offset
            replica.host.persist_log_start(replica, offset)

    def persisted(self, offset: int) -> None:
        """The journal that tells of this log start is durable."""
        replica = self._replica
        log = replica.log
        if offset <= log.start_offset:
            return  # the log was installed above it in the meantime
        log.set_start_offset(offset)
        group = replica.group
        group.watermarks = group.watermarks._replace(log_start=offset)
        if replica.is_leader:
            self.expose()
        else:
            self.delete_segments()

    def log_replaced(self) -> None:
        """Another log begins where an install put it: above all that was committed, and so deleted, in the old one."""
        assert self._journaled <= self._replica.log.start_offset
        self._journaled = self._replica.log.start_offset

    def expose(self) -> None:
        """On the leader: its own log start is durable, or a follower's came."""
        replica = self._replica
        own = replica.log.start_offset
        if self.exposed < own:
            exposed = min(replica.group.majority_log_start(), own)
            if exposed > self.exposed:
                self.exposed = exposed
                self._waits.release(exposed)
                replica.wake_fetches()
                self.delete_segments()

    # -- deleting bytes ----------------------------------------------------------------------------------

    def apply_retention(self) -> None:
        """On the leader, which alone decides what is too old or too much, and only below the high watermark."""
        replica = self._replica
        config = replica.config
        self.want(
            replica.log.retention_start(
                replica.host.now_ms(), config.retention_ms, config.retention_bytes, replica.high_watermark
            )
        )

    def delete_segments(self, *, give_up_from_bytes: int = GIVE_UP_BYTES) -> None:
        """Delete the segments of which no reader is shown anything: on the leader, when a majority has given them up.
        The active one, too, if it holds so many bytes."""
        replica = self._replica
        log = replica.log
        readable = self.exposed if replica.is_leader else log.start_offset
        try:
            if readable == replica.next_offset and log.segments[-1].size_bytes >= give_up_from_bytes:
                # Nothing is left. What the producers wrote is known here, and need not be read again.
                write_snapshot(log, replica.producers, replica.high_watermark)
                log.roll()
            end_offset = log.whole_segments_end(readable)
            if end_offset == log.segments[0].base_offset:
                return
            ensure_snapshot(log, end_offset, replica.high_watermark)
            logger.info("deleted", topic=replica.topic, partition=replica.partition, below=end_offset)
            log.delete_segments(end_offset)
            replica.group.install_offset = log.install_offset
        except DiskFullError as error:
            # A snapshot, or a new segment, needs room; until there is some, the old ones stay.
            logger.error(
                "not deleted: disk full", topic=replica.topic, partition=replica.partition, error=str(error)
            )
        except CorruptLogError as error:
            replica.host.log_corrupt(replica, error)
