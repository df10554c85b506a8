"""What a replica needs of its node: clock, flush rounds, the way to other replicas, and whom to tell what happened."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from broker.scheduling.turn import Writer
from protocol import peer
from raft.types import HardState, InstallSnapshot, ReplicaId
from storage.errors import CorruptLogError
from storage.journal_records import Bounds

if TYPE_CHECKING:
    from broker.replication.disk_space import DiskSpace
    from broker.replication.replica import Replica
    from broker.replication.topic_traffic import TrafficByTopic


class ReplicaHost(Protocol):
    """See the module. The node's part is `broker.replication.replicas.Replicas`."""

    replica_lag_time_max_s: float
    may_campaign: bool
    space: DiskSpace
    traffic: TrafficByTopic

    @property
    def producer_expiration_s(self) -> float: ...
    def now(self) -> float: ...
    def now_ms(self) -> int: ...
    def note_writer(self, writer: Writer) -> None:
        """Have it send and write when the loop iteration ends."""

    def note_deferred(self, replica: Replica) -> None:
        """Appends are batched for deferred followers: send them soon (`replicas.APPEND_BATCH_S`)."""

    def log_dirty(self, replica: Replica, *, may_block: bool = True) -> None:
        """Have the next flush round cover this replica's log. `may_block`: as in `storage.disk.Disk.flush`."""

    def truncate(self, replica: Replica, to_index: int, known_commit: int) -> bool:
        """Cut this replica's log, durably, recorded end first; never below what was known to be committed. False: the
        log is corrupt, so the replica was quarantined and closed."""

    def persist_log_start(self, replica: Replica, offset: int) -> None:
        """Record a raised log start; `log_start_persisted` says when that is durable, before anything below goes."""

    def persist_bounds(self, replica: Replica, bounds: Bounds) -> None:
        """Record each of these bounds that is higher than what is recorded; `CompactionBounds.persisted` says when that
        is durable."""

    def persist_vote(self, replica: Replica, state: HardState) -> None:
        """Write term and vote to the journal; `hard_state_persisted` says when they are durable, before anything else
        that waits for the same flush (`after_flush_of`)."""

    def send(self, to: ReplicaId, message: peer.PeerMessage) -> None:
        """To that very replica: a node that came back with another directory is somebody else."""

    def prepare(self, to: ReplicaId, message: peer.PeerMessage) -> Callable[[], None] | None:
        """`send`, but for what takes time: what is returned sends it at once, and is called before anything else
        happens. None: nobody is there."""

    def after_flush_of(self, replica: Replica, action: Callable[[], None]) -> None:
        """Do it when everything written so far, journal included, is durable. Never, if the replica is closed by then:
        its log may be given up, and another identity have its place."""

    def timer_changed(self, replica: Replica) -> None: ...
    def role_changed(self, replica: Replica) -> None: ...
    def commit_moved(self, replica: Replica) -> None: ...
    def marker_appended(
        self, replica: Replica, producer_id: int, end_offset: int, *, is_commit: bool
    ) -> None:
        """Leader: a transaction marker is staged, and ends at this offset."""

    def send_snapshot(self, replica: Replica, snapshot: InstallSnapshot) -> None:
        """Leader: give a follower the beginning that it missed."""

    def install_snapshot(
        self, replica: Replica, snapshot: InstallSnapshot, message: peer.InstallSnapshot
    ) -> None:
        """Follower: replace the log by an empty one that begins where the snapshot does; then tell the driver
        `snapshot_installed`, or `snapshot_install_failed`. `message` is the one that brought it."""

    def range_refused(self, replica: Replica, follower: ReplicaId, start_index: int) -> None:
        """A follower found a batch of ours corrupt: read it again here (replication.md section 2)."""

    def log_corrupt(self, replica: Replica, error: CorruptLogError) -> None:
        """Durable bytes of this log are bad: it must not be used any longer than this turn."""
