"""The invariants of what nodes do, among themselves and with their disks, and the moments at which each is looked at.

Nodes report through `tests.simulator.observer.NodeObserver`; nothing here changes anything.
"""

from __future__ import annotations

from collections.abc import Mapping

from broker.replication.replica import Replica
from protocol import peer
from raft.types import ReplicaId
from storage.journal import Journal
from storage.log import Log
from storage.log_types import GroupKey
from tests.simulator.disk import MemoryDisk
from tests.simulator.durable_log import DurableLogs
from tests.simulator.invariants.acknowledged_is_durable import AcknowledgedIsDurable
from tests.simulator.invariants.answered_term_is_durable import AnsweredTermIsDurable
from tests.simulator.invariants.committed_is_durable import CommittedIsDurable
from tests.simulator.invariants.disk_failure_ends_node import DiskFailureEndsNode
from tests.simulator.invariants.identity_kept import IdentityKept
from tests.simulator.invariants.in_sync_is_durable import InSyncIsDurable
from tests.simulator.invariants.leader_completeness import LeaderCompleteness
from tests.simulator.invariants.lineage_agrees import LineageAgrees
from tests.simulator.invariants.log_start_monotone import LogStartMonotone
from tests.simulator.invariants.named_log_start_is_durable import NamedLogStartIsDurable
from tests.simulator.invariants.never_back import NeverBack
from tests.simulator.invariants.one_vote_per_term import Directory, OneVotePerTerm
from tests.simulator.invariants.recorded_is_durable import RecordedIsDurable


class NodeOracle:
    """Outlives all nodes, as their promises do. `disks`: by node; a wiped node's is another one from then on."""

    def __init__(self, disks: Mapping[int, MemoryDisk]) -> None:
        durable = DurableLogs(disks)
        self.votes = OneVotePerTerm()
        self.completeness = LeaderCompleteness()
        self.lineages = LineageAgrees()
        self.never_back = NeverBack()
        self.identities = IdentityKept()
        self.acknowledged = AcknowledgedIsDurable(durable, self.identities)
        self.committed_durable = CommittedIsDurable(durable, self.acknowledged, self.identities)
        self.in_sync = InSyncIsDurable(disks, durable, self.acknowledged)
        self.recorded = RecordedIsDurable(durable)
        self.log_starts = LogStartMonotone()
        self.disk_failures = DiskFailureEndsNode()
        self.answered_terms = AnsweredTermIsDurable(disks, durable)
        self.named_log_starts = NamedLogStartIsDurable(disks, durable)
        #: The replica of each node that was seen last, and its log: another one is another life, or an install.
        self._open: dict[tuple[int, GroupKey], tuple[Replica, Log]] = {}

    def disk_lost(self, node_id: int) -> None:
        """The volume was replaced by an empty one."""
        self.identities.disk_lost(node_id)

    def damaged(self, node_id: int, key: GroupKey) -> None:
        """Bytes of that node's log are corrupt: until it is built anew, its disk proves nothing for or against it."""
        self.identities.damaged(node_id, key)

    def given_up(self, node_id: int, key: GroupKey) -> None:
        """The replica there is no member any more, and its log goes."""
        self.identities.given_up(node_id, key)

    def gives_up(self, replica: Replica) -> None:
        """This node's own. What a leader has on its disk by now may have counted for answers that are still on their
        way (seed 941909590004)."""
        if replica.is_leader:
            self.acknowledged.acknowledged(replica, replica.group.persisted_end)
        self.given_up(replica.group.self_id.node_id, replica.key)

    def role_changed(self, replica: Replica) -> None:
        """... or it was just opened."""
        self._observe(replica)
        if replica.is_leader:
            self.votes.won(replica)
            self.completeness.check(replica)

    def commit_moved(self, replica: Replica) -> None:
        self._observe(replica)
        if replica.is_leader and replica.group.self_id in replica.group.configuration.voters:
            self.acknowledged.acknowledged(replica, replica.group.persisted_end)
        self.committed_durable.committed(replica)
        self.completeness.rows_committed(replica)

    def truncating(self, replica: Replica, to_index: int) -> None:
        """The log is about to be cut."""
        self.never_back.cut(replica, to_index)
        self.acknowledged.cut(replica, to_index)

    def sent(
        self,
        sender: Directory,
        to: Directory,
        message: peer.PeerMessage | peer.LogStartAck,
        replica: Replica | None,
    ) -> None:
        """A message, or what one says of a group, leaves for another node. `replica`: the sender's of that group; None
        where it is closed."""
        match message:
            case peer.VoteReply(granted=True, pre_vote=False):
                voter = ReplicaId(*sender, message.incarnation)
                self._voted(message, voter, to, replica)
            case peer.VoteRequest(pre_vote=False):
                voter = ReplicaId(*sender, message.incarnation)
                self._voted(message, voter, sender, replica)
            case peer.AppendReply() if replica is not None:
                self._speaks_for_its_log(message.incarnation, replica)
                self._observe(replica)
                self.answered_terms.answered(replica, message.term)
                self.named_log_starts.named(replica, message.log_start)
                self.acknowledged.acknowledged(replica, message.match_end)
            case peer.AppendRejection() if replica is not None:
                self._observe(replica)
                self.answered_terms.answered(replica, message.term)
                self.named_log_starts.named(replica, message.log_start)
            case peer.InstallSnapshotReply() if replica is not None:
                self._speaks_for_its_log(message.incarnation, replica)
                self.answered_terms.answered(replica, message.term)
                self.named_log_starts.named(replica, message.log_start)
                self.acknowledged.acknowledged(replica, message.match_end)
            case peer.LogStartAck() if replica is not None:
                self.named_log_starts.named(replica, message.log_start)

    @staticmethod
    def _speaks_for_its_log(incarnation: int, replica: Replica) -> None:
        """One that was closed speaks of a log that is gone (seed 548444148088)."""
        own = replica.group.self_id
        assert incarnation == own.incarnation, (
            f"incarnation {incarnation} of {replica.topic}-{replica.partition} acknowledges, where {own} is open"
        )

    def scan(self, replica: Replica, journal: Journal) -> None:
        """Between two callbacks."""
        self._observe(replica)
        if self.identities.is_intact(replica.key, replica.group.self_id):
            self.lineages.scan(replica)
            self.recorded.scan(replica, journal)

    def _voted(
        self,
        message: peer.VoteReply | peer.VoteRequest,
        voter: ReplicaId,
        candidate: Directory,
        replica: Replica | None,
    ) -> None:
        self.votes.voted(GroupKey(message.topic_id, message.partition), voter, message.term, candidate)
        if replica is not None and replica.group.self_id == voter:
            self.votes.check_member(replica)

    def _observe(self, replica: Replica) -> None:
        """What costs next to nothing."""
        at = (replica.group.self_id.node_id, replica.key)
        known, log = self._open.get(at, (None, None))
        if known is not replica:
            self.identities.opened(replica)
            self.acknowledged.opened(replica)
        elif log is not replica.log:
            self.acknowledged.cut(replica, replica.log.end_index)
        self._open[at] = (replica, replica.log)
        self.never_back.check(replica)
        self.log_starts.check(replica)
