"""What a node does while its disk has little room or none, and when it has some again (replication.md section 2)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import structlog

from broker.config.layers import LiveSettings
from broker.replication.ranges import send_again
from protocol import peer
from raft.types import ReplicaId
from storage.disk import Disk, DiskFullError
from storage.journal import Journal
from storage.log_types import GroupKey

if TYPE_CHECKING:
    from broker.replication.replica import Replica

logger = structlog.get_logger()

#: A follower whose disk was full asks its leader this often, once there is room again.
SPACE_RETRY_S = 0.5
#: What a range that cuts the log puts into the journal: its term, the lower end, and, if the log turns out to be
#: corrupt, its quarantine.
TRUNCATION_RECORDS = 3
#: A disk that was full has room again: for rows, the next part of the journal, and a batch.
FULL_UNTIL_BYTES = 1 << 20


class DiskSpace:
    """Of the data directory. `replicas` are those of the node; `send` sends to a replica elsewhere."""

    def __init__(
        self,
        disk: Disk,
        journal: Journal,
        settings: LiveSettings,
        now: Callable[[], float],
        replicas: Mapping[GroupKey, Replica],
        send: Callable[[ReplicaId, peer.PeerMessage], None],
    ) -> None:
        self._disk = disk
        self._journal = journal
        self._settings = settings
        self._now = now
        self._replicas = replicas
        self._send = send
        #: Less than log.min.free.bytes is left, when `tick` looked last.
        self.is_low = False
        #: A write did not fit, and `tick` has not seen FULL_UNTIL_BYTES since, nor SPACE_RETRY_S passed.
        self.is_full = False
        self._full_until = 0.0
        #: Followers that could not keep what they were sent, and when to ask for it again.
        self._lacking: dict[Replica, float] = {}

    def found_full(self, error: DiskFullError) -> None:
        """A write did not fit. Nobody campaigns here until there is room: a leader could not write its first row, and
        each try would use up what room the journal has for votes."""
        if not self.is_full:
            logger.error("the disk is full", error=str(error))
        self.is_full = True
        self._full_until = self._now() + SPACE_RETRY_S

    def may_truncate(self, replica: Replica) -> bool:
        """Asked before the group hears of the range, because it cuts at once, and the log is cut once the journal says
        so. False: the journal has no room for that, and the range counts as not received."""
        if self._has_journal_room(TRUNCATION_RECORDS):
            return True
        self.lacks_space(replica)
        return False

    def may_flush_journal(self) -> bool:
        """Whether it has room for what is pending."""
        return self._has_journal_room(0)

    def _has_journal_room(self, records: int) -> bool:
        try:
            self._journal.make_room(records)
        except DiskFullError as error:
            self.found_full(error)
            return False
        return True

    def lacks_space(self, replica: Replica) -> None:
        """It could not keep what its leader sent: it asks for it again when there may be room."""
        self._lacking[replica] = self._now() + SPACE_RETRY_S

    def forget(self, replica: Replica) -> None:
        self._lacking.pop(replica, None)

    def tick(self, now: float) -> None:
        free_bytes = self._disk.free_bytes()
        self.is_low = free_bytes < self._settings.config.log_min_free_bytes
        if self.is_full and now >= self._full_until and free_bytes >= FULL_UNTIL_BYTES:
            logger.info("the disk has room again", free_bytes=free_bytes)
            self.is_full = False
            for replica in list(self._replicas.values()):
                replica.driver.space_is_back()
        self._ask_again(now)

    def _ask_again(self, now: float) -> None:
        """Who could not keep what it was sent asks for it, so that its leader need not try while the disk is full, and
        does not take seconds to try when it is not."""
        for replica in [replica for replica, at in self._lacking.items() if at <= now]:
            if replica.must_leave_reserve:
                continue
            del self._lacking[replica]
            leader = replica.group.leader
            if leader is not None and leader != replica.group.self_id:
                self._send(leader, send_again(replica))
