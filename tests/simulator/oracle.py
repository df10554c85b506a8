"""What was promised and what was seen: the invariants' shared memory, and where they are called from."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from broker.replication.replica import Replica
from protocol.records.batch import BatchHeader
from protocol.records.control import read_marker
from storage.journal import Journal
from storage.log_types import GroupKey
from tests.simulator.compaction_oracle import CompactionOracle
from tests.simulator.disk import MemoryDisk
from tests.simulator.invariants.acknowledged_never_lost import AcknowledgedNeverLost
from tests.simulator.invariants.acknowledged_once import AcknowledgedOnce
from tests.simulator.invariants.deleted_as_asked import DeletedAsAsked
from tests.simulator.invariants.exactly_once import ExactlyOnce
from tests.simulator.invariants.failed_never_appears import FailedNeverAppears
from tests.simulator.invariants.fenced_never_writes import FencedNeverWrites
from tests.simulator.invariants.latest_covers_promises import LatestCoversPromises
from tests.simulator.invariants.log_matching import LogMatching
from tests.simulator.invariants.no_duplicate import NoDuplicate
from tests.simulator.invariants.offsets_never_back import OffsetsNeverBack
from tests.simulator.invariants.one_leader_per_term import OneLeaderPerTerm
from tests.simulator.invariants.one_owner import OneOwner
from tests.simulator.invariants.one_value_per_offset import OneValuePerOffset, value_of
from tests.simulator.invariants.one_worker import OneWorker
from tests.simulator.invariants.only_committed_is_read import OnlyCommittedIsRead
from tests.simulator.invariants.transactions_are_atomic import TransactionsAreAtomic
from tests.simulator.invariants.watermarks_monotone import WatermarksMonotone
from tests.simulator.node_oracle import NodeOracle


class Oracle:
    """Outlives all nodes. Everything it learns it keeps for ever: that is what makes the promises testable."""

    def __init__(self, disks: Mapping[int, MemoryDisk]) -> None:
        self.nodes = NodeOracle(disks)
        self.compaction = CompactionOracle(disks)
        self.values = OneValuePerOffset(self.compaction)
        self.leaders = OneLeaderPerTerm()
        self.duplicates = NoDuplicate()
        self.matching = LogMatching(self.values)
        self.acknowledged = AcknowledgedNeverLost(self.values)
        self.failed = FailedNeverAppears(self.values.places)
        self.once = AcknowledgedOnce(self.values.places)
        self.watermarks = WatermarksMonotone()
        self.deletions = DeletedAsAsked()
        self.latest = LatestCoversPromises(self.acknowledged)
        self.owners = OneOwner()
        self.workers = OneWorker()
        self.offsets = OffsetsNeverBack()
        self.transactions = TransactionsAreAtomic()
        self.committed_reads = OnlyCommittedIsRead(self.transactions)
        self.fencing = FencedNeverWrites()
        self.exactly_once = ExactlyOnce(self.transactions)
        #: (node, group, incarnation) -> high watermark up to which this life of the replica was compared.
        self._compared: dict[tuple[int, GroupKey, int], int] = {}
        self._given_up: dict[tuple[int, GroupKey, int], None] = {}
        #: Whether what a node gave of a group in the last seconds may come from corrupt bytes.
        self.may_be_corrupt: Callable[[int, GroupKey], bool] = lambda node_id, key: False

    def node_gone(self, node_id: int) -> None:
        """The next life is compared from its log's beginning."""
        for at in [at for at in self._compared if at[0] == node_id]:
            del self._compared[at]

    def given_up(self, node_id: int, key: GroupKey, end_offset: int) -> None:
        """The removal of that node's replica is committed, says the metadata record before `end_offset`; nodes that
        restart read it again."""
        if (node_id, key, end_offset) not in self._given_up:
            self._given_up[node_id, key, end_offset] = None
            for at in [at for at in self._compared if at[:2] == (node_id, key)]:
                del self._compared[at]
            self.nodes.given_up(node_id, key)

    def role_changed(self, replica: Replica) -> None:
        if replica.config.is_compacted:
            self.compaction.begins(replica.key)
        self.nodes.role_changed(replica)
        if replica.is_leader:
            self.leaders.leads(replica.key, replica.group.term, replica.group.self_id)
            if replica.is_serving:
                self.acknowledged.check_leader(replica)

    def committed(self, node_id: int, replica: Replica) -> None:
        """A replica's high watermark rose: compare what lies below it now."""
        self.nodes.commit_moved(replica)
        if self.compaction.is_compacted(replica.key):
            self.compaction.note_members(replica)
        self.deletions.check(replica)
        at = (node_id, replica.key, replica.group.self_id.incarnation)
        start = max(self._compared.get(at, 0), replica.log.start_offset)
        for stored in replica.log.batches(start, replica.high_watermark):
            header = stored.header
            if header.base_offset < start:
                if header.is_filler:
                    self.values.check(replica.key, header, stored.view())
                continue
            self.nodes.completeness.batch_committed(replica, header.base_offset)
            value = value_of(header, stored.view())
            if self.values.seen(replica.key, header, stored.view(), value):
                self.failed.check(value.digest)
                self.once.check(value.digest)
                if header.producer_id >= 0:
                    self._of_producer(replica.key, header, stored.view(), value.digest)
            if header.base_sequence >= 0:
                self.duplicates.seen(replica.key, header)
        self._compared[at] = max(start, replica.high_watermark)
        self.latest.committed(replica.key, replica.high_watermark)

    def _of_producer(self, key: GroupKey, header: BatchHeader, batch: memoryview, digest: bytes) -> None:
        """A batch or a marker, committed for the first time."""
        marker = read_marker(batch) if header.is_control else None
        self.fencing.batch_committed(key, header, marker)
        self.transactions.batch_committed(key, header, digest, marker)

    def read(self, key: GroupKey, header: BatchHeader, batch: memoryview) -> None:
        """A client read a batch."""
        assert (key, header.base_offset) in self.values.values, "a client read what no replica has committed"
        self.values.check(key, header, batch)

    def read_in(self, key: GroupKey, header: BatchHeader) -> list[int]:
        """Base offsets of what was committed, and what a client has got to know with a batch that was checked."""
        if not header.is_filler:
            return [header.base_offset]
        return [original.base_offset for original in self.values.originals(key, header)]

    def scan(self, replica: Replica, journal: Journal) -> None:
        """Every batch and row of a log, committed or not."""
        is_intact = self.nodes.identities.is_intact(replica.key, replica.group.self_id)
        if is_intact:
            self.compaction.scan(replica, journal, self.values)
        self.matching.scan(replica.key, replica.log)
        self.deletions.check(replica)
        assert replica.group.end_index == replica.log.end_index
        replica.group.check()
