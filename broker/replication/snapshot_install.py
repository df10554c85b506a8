"""Snapshot installs (replication.md section 7): a follower that lacks what its leader has deleted begins anew.

A snapshot is an empty log that begins at the leader's log start, with the rows below and the producer state there.
Records follow as ranges.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import structlog

from broker.replication import wire
from broker.replication.watermarks.bounds import DurableBounds
from protocol import peer
from raft.types import InstallSnapshot
from storage.disk import Disk, DiskFullError
from storage.errors import CorruptLogError
from storage.group_commit import FlushRounds
from storage.journal import Journal
from storage.journal_records import Flushed
from storage.log import Log
from storage.log_creation import install_log
from storage.producer_snapshot import encode_snapshot, load_producers

if TYPE_CHECKING:
    from broker.replication.replica import Replica
    from broker.replication.replica_host import ReplicaHost

logger = structlog.get_logger()


class SnapshotInstalls:
    """Of all replicas of a node. `discard_log(log)`: no flush round covers this log any more."""

    def __init__(
        self,
        host: ReplicaHost,
        disk: Disk,
        journal: Journal,
        rounds: FlushRounds,
        bounds: DurableBounds,
        discard_log: Callable[[Log], None],
    ) -> None:
        self._host = host
        self._disk = disk
        self._journal = journal
        self._rounds = rounds
        self._bounds = bounds
        self._discard_log = discard_log

    def send(self, replica: Replica, snapshot: InstallSnapshot) -> None:
        """Leader: as `ReplicaHost.send_snapshot`."""
        start = snapshot.log_start
        try:
            producers = load_producers(replica.log, start)
        except CorruptLogError as error:
            self._host.log_corrupt(replica, error)
            return
        rows = replica.log.lineage.rows[: len(snapshot.rows)]
        message = peer.InstallSnapshot(
            topic_id=replica.key.topic_id,
            partition=replica.partition,
            incarnation=replica.group.self_id.incarnation,
            follower_incarnation=snapshot.replica.incarnation,
            term=replica.group.term,
            log_start=start,
            rows=[wire.row_to_wire(row) for row in rows],
            producer_snapshot=encode_snapshot(producers),
        )
        self._host.send(snapshot.replica, message)

    def install(self, replica: Replica, snapshot: InstallSnapshot, message: peer.InstallSnapshot) -> None:
        """Follower: as `ReplicaHost.install_snapshot`."""
        old = replica.log
        logger.info(
            "installing a snapshot",
            topic=replica.topic,
            partition=replica.partition,
            log_start=snapshot.log_start,
        )
        try:
            log = install_log(
                self._disk,
                self._journal,
                old.directory,
                replica.key,
                old.config,
                log_start=snapshot.log_start,
                rows=[wire.log_row_from_wire(row) for row in message.rows],
                producer_snapshot=bytes(message.producer_snapshot) or None,
            )
        except DiskFullError as error:
            if not self._disk.exists(old.directory):
                raise  # between two names: the next start finishes it
            logger.error(
                "not installed: disk full", topic=replica.topic, partition=replica.partition, error=str(error)
            )
            # The old log stands, and so does its end.
            self._journal.append(Flushed(replica.key, old.flushed_end))
            self._host.after_flush_of(replica, lambda: None)
            replica.driver.snapshot_install_failed()
            self._host.space.lacks_space(replica)
            return
        # Durable with the next flush: recovery knows a log that begins above its recorded start as an installed one.
        self._bounds.raise_log_start(replica.key, snapshot.log_start)
        self._discard_log(old)
        old.close(is_clean=False)
        self._rounds.log_opened(log)
        replica.driver.snapshot_installed(snapshot, log)
