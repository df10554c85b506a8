"""Where a replica's log starts: who raises it, when clients see that, and when the bytes below go (replication.md
section 6, "Log start").

Three values. The log's own start is durable here. The *exposed* one is what clients are shown: it follows when a
majority has persisted the own one, so that no fail-over brings back what a client was told is deleted. The *granted*
one is the highest that the voters had when this replica won; it is taken as soon as the high watermark allows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from storage.disk import DiskFullError
from storage.errors import CorruptLogError
from storage.producer_snapshot import ensure_snapshot

if TYPE_CHECKING:
    from broker.replication.replica import Replica

logger = structlog.get_logger()


class LogStart:
    """Of one replica, whose log may be replaced in the meantime."""

    __slots__ = ("_exposed", "_exposes_own", "_granted", "_is_settled", "_replica")

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        #: What clients were shown last. Never above the log's own start.
        self._exposed = replica.log.start_offset
        #: The exposed start is the log's own again: nothing to compute.
        self._exposes_own = True
        #: A replica that has just started does not know the high watermark that allows it.
        self._granted = 0
        self._is_settled = True

    def settle(self) -> bool:
        """Whether no reader was ever shown more than `exposed`: asked before any is answered.

        A leader that has just won was told of the highest start of its voters, and not whether that had been exposed:
        what is below may be deleted for some readers, and what is above need not stay deleted. It answers nobody until
        a majority, itself included, has it: at once when its first row is committed, unless who acknowledged that
        lacked it, too. Schedule: of five, A, B and C have deleted, and A shows it; A dies; D, which has not, wins with
        B and E and knows of a majority only when E has followed, too.
        """
        if not self._is_settled:
            self.take_granted()  # what was in the way, an unfinished flush or a full disk, may be gone
            replica = self._replica
            persisted = min(replica.log.start_offset, replica.group.majority_log_start())
            self._is_settled = persisted >= self._granted
        return self._is_settled

    @property
    def exposed(self) -> int:
        """Persisted by a majority."""
        own = self._replica.log.start_offset
        if not self._exposes_own:
            persisted = self._replica.group.majority_log_start()
            if persisted < own:
                return max(persisted, self._exposed)
            self._exposes_own = True
        self._exposed = own
        return own

    def granted(self, offset: int) -> None:
        """This replica won, and the voters had a log start up to here."""
        self._granted = offset
        self._is_settled = False
        self.take_granted()

    def take_granted(self) -> None:
        """Again whenever the high watermark rose."""
        if self._granted > self._replica.log.start_offset:
            self.raise_to(min(self._granted, self._replica.high_watermark))

    def follower_reported(self) -> None:
        """A follower's own log start came; the majority may have what clients wait to be shown."""
        if not self._exposes_own:
            self._delete_unreadable()

    def apply_retention(self) -> None:
        """On the leader, which alone decides what is too old or too much, and only below the high watermark."""
        replica = self._replica
        config = replica.config
        self.raise_to(
            replica.log.retention_start(
                replica.host.now_ms(), config.retention_ms, config.retention_bytes, replica.high_watermark
            )
        )

    def raise_to(self, offset: int) -> None:
        """The producer snapshot at or above the new start is durable first (replication.md section 8)."""
        replica = self._replica
        log = replica.log
        offset = min(offset, log.flushed_end.end_offset)
        if offset <= log.start_offset:
            return
        try:
            ensure_snapshot(log, offset, replica.high_watermark)
        except DiskFullError as error:
            self._disk_full("log start not raised", error)
            return
        except CorruptLogError as error:
            replica.host.log_corrupt(replica, error)
            return
        logger.info("log start raised", topic=replica.topic, partition=replica.partition, offset=offset)
        log.set_start_offset(offset)
        replica.host.persist_log_start(replica)
        replica.group.watermarks = replica.group.watermarks._replace(log_start=offset)
        self._exposes_own = False
        self._delete_unreadable()

    def _delete_unreadable(self) -> None:
        """Segments go when no reader is shown them: on the leader, when a majority has given them up."""
        replica = self._replica
        try:
            replica.log.delete_segments_below(self.exposed if replica.is_leader else replica.log.start_offset)
        except DiskFullError as error:
            # Deleting all of a log begins a new segment; until there is room for that, the old one stays.
            self._disk_full("not deleted", error)

    def _disk_full(self, what: str, error: DiskFullError) -> None:
        replica = self._replica
        logger.error(f"{what}: disk full", topic=replica.topic, partition=replica.partition, error=str(error))
