"""The limit within which disks lose what was durable (replication.md section 3, last line).

**The rule.** A group's copy on node N may be damaged (wiped, corrupt, its journal lost) only if, without N, in *every
configuration that may be in force* for the group, a majority of the voters are intact. Damage to a whole node has to
keep that in every group that names the node. A voter is intact if its node's disk holds exactly that identity
(directory id and incarnation) and nothing that was damaged there is still unrepaired. Damage is repaired when the
node's replica is a voter of the committed configuration again, nothing under its log is corrupt, and it has everything
that was ever committed in the group.

**Why.** What is committed is durable on a majority of the voters; the intact ones are a majority, too, so one of them
has it, and they alone can elect it: nobody else has a vote that counts. One damaged copy more and the only intact ones
may be those that lag, which is a loss that no rule prevents. (TigerBeetle's simulator keeps such an account and calls
it a fault atlas.)

**In force** may be the last configuration known to be committed and every later one that lies in any log, on the disk
of a dead node as well: it may have been committed by nodes that have died since. Where no disk has a log of the group,
it is what the metadata names as its founding replicas: they promised nothing yet, but nobody else can found it.

**One node at a time.** A whole node is not lost while another one that was lost is not registered again: until then the
controller places new partitions on the directories of both, and a partition whose founders are gone waits for an
operator for ever.

**Learners** count as the voters that they may be before their damage is met: of a partition that moves from its only
copy, the new one is a voter soon, and both are needed then.

Power may fail everywhere at once: what was not flushed was not promised.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from broker.membership.identity import RestartError, StartError
from broker.metadata.ids import METADATA_TOPIC_ID
from broker.metadata.image import MetadataImage
from broker.replication.replica import Replica
from broker.replication.wire import founding_configuration, row_from_log
from raft.types import Configuration, ReplicaId, RowKind
from storage.directory import is_formatted, read_meta
from storage.disk import DiskFullError
from storage.errors import CorruptLogError
from storage.journal import JOURNAL_NAME
from storage.lineage import LINEAGE_NAME, Lineage
from storage.log_types import GroupKey
from storage.partition_folder import METADATA_NAME, parse_folder_name, read_topic_id
from storage.segment_files import INDEX_SUFFIX, LOG_SUFFIX, SNAPSHOT_SUFFIX, TIME_INDEX_SUFFIX
from storage.segment_swap import COMPACTED_NAME
from tests.simulator.disk import UNLIMITED_BYTES, InjectedError, MemoryDisk, VanishedError
from tests.simulator.durable_journal import durable_journal
from tests.simulator.process import looking_on

if TYPE_CHECKING:
    from tests.simulator.cluster import SimulatedCluster

METADATA_KEY = GroupKey(METADATA_TOPIC_ID, 0)
#: A client may still hold an answer that was read from a corrupt file for this long.
ANSWERS_LAST_S = 5.0


@dataclass
class Wound:
    """Damage to one replica."""

    #: Who it was, where nothing of that identity may come back: a wipe, a lost journal.
    lost: ReplicaId | None
    #: The loop time at which it was seen to be repaired.
    repaired_s: float | None = None


@dataclass
class Folder:
    """A partition on a disk, as it was written."""

    path: str
    lineage: Lineage


def folders(disk: MemoryDisk) -> dict[GroupKey, Folder]:
    """Every whole partition folder."""
    found: dict[GroupKey, Folder] = {}
    for name in disk.list(disk.root) if disk.exists(disk.root) else ():
        parsed, path = parse_folder_name(name), f"{disk.root}/{name}"
        if parsed is None or not all(disk.exists(f"{path}/{part}") for part in (METADATA_NAME, LINEAGE_NAME)):
            continue  # a node may have died while it made the folder
        key = GroupKey(read_topic_id(disk, path), parsed[1])
        found[key] = Folder(path, Lineage.open(disk, path, 0))
    return found


def _voters_soon(configuration: Configuration) -> list[tuple[ReplicaId, ...]]:
    """The voters now, and when the learners vote, each in the place of what its node was before."""
    by_node = {member.node_id: member for member in (*configuration.voters, *configuration.learners)}
    return [configuration.voters, tuple(by_node.values())]


class Damage:
    """Keeps the account. Asked by faults, between callbacks of the nodes."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        #: The highest commit index that any replica of a group ever had.
        self._committed: dict[GroupKey, int] = {}
        self._wounds: dict[tuple[int, GroupKey], Wound] = {}
        #: Of copies that were damaged: since when nothing of their segments is seen to be corrupt.
        self._sound_since_s: dict[tuple[int, GroupKey], float | None] = {}
        #: Whether nodes as a whole may be lost. Not where topics of one copy are created meanwhile: one that is founded
        #: on a directory that is lost before it has opened it has no other copy, and waits for an operator for ever.
        self.spares_nodes = False

    def committed(self, replica: Replica) -> None:
        key = replica.key
        self._committed[key] = max(self._committed.get(key, 0), replica.group.commit_end)

    # -- may it be? ------------------------------------------------------------------------------------------

    def may_damage(self, node_id: int, key: GroupKey | None = None) -> bool:
        """Whether this node's copy of a group may be damaged now; without a group: the whole node."""
        if not self._committed.get(METADATA_KEY) or (key is None and self.spares_nodes):
            return False  # while the cluster forms, nobody knows yet who belongs to it
        others = [other for other in self._cluster.node_ids if other != node_id]
        image = self._cluster.newest_image()
        if image is None or (key is None and not all(self._is_registered(other, image) for other in others)):
            return False
        held = {other: folders(disk) for other, disk in self._cluster.disks.items()}
        named = self._in_force(held.values(), image)
        identities = {other: self._identities(other) for other in self._cluster.node_ids}
        for asked in named if key is None else [key]:
            for voters in chain.from_iterable(map(_voters_soon, named.get(asked, ()))):
                if all(voter.node_id != node_id for voter in voters):
                    continue
                intact = [
                    voter
                    for voter in voters
                    if voter.node_id != node_id
                    and identities[voter.node_id].get(asked) == voter
                    and not self.is_damaged(voter.node_id, asked)
                ]
                if len(intact) <= len(voters) // 2:
                    return False
        return True

    def _is_registered(self, node_id: int, image: MetadataImage) -> bool:
        """Whether the controller knows the directory that this node has, or will have when it starts again."""
        disk = self._cluster.disks[node_id]
        broker = image.brokers.get(node_id)
        return (
            broker is not None
            and not self._has_corrupt_journal(node_id)
            and is_formatted(disk)
            and read_meta(disk).directory_id == broker.directory_id
        )

    def _in_force(
        self, held: Iterable[dict[GroupKey, Folder]], image: MetadataImage
    ) -> dict[GroupKey, list[Configuration]]:
        found: dict[GroupKey, list[Configuration]] = {}
        for by_key in held:
            for key, folder in by_key.items():
                committed = self._committed.get(key, 0)
                rows = [row_from_log(row) for row in folder.lineage.rows if row.kind == RowKind.CONFIGURATION]
                below = [row for row in rows if row.index < committed]
                for row in (*below[-1:], *rows[len(below) :]):
                    assert row.configuration is not None
                    found.setdefault(key, []).append(row.configuration)
        for topic in image.topics.values():
            for number, partition in enumerate(topic.partitions):
                key = GroupKey(topic.topic_id, number)
                found.setdefault(key, [founding_configuration(partition.founding)])
        return found

    def _identities(self, node_id: int) -> dict[GroupKey, ReplicaId]:
        """Who this node is in each group that its journal knows."""
        disk = self._cluster.disks[node_id]
        if not disk.exists(disk.root) or not is_formatted(disk):
            return {}
        directory = read_meta(disk).directory_id.bytes
        return {
            key: ReplicaId(node_id, directory, state.incarnation)
            for key, state in durable_journal(disk).items()
            if state.has_vote
        }

    # -- it was ----------------------------------------------------------------------------------------------

    def note(self, node_id: int, key: GroupKey | None = None, *, is_lost: bool = False) -> None:
        """A copy was damaged, or all of a node. `is_lost`: that identity cannot be used any more, and nobody reads
        anything wrong from it."""
        oracle = self._cluster.oracle.nodes
        oracle.in_sync.damaged(node_id)
        identities = self._identities(node_id)
        if key is not None:
            oracle.damaged(node_id, key)
            if not is_lost:
                self._sound_since_s[node_id, key] = None
        elif is_formatted(disk := self._cluster.disks[node_id]):
            oracle.identities.journal_damaged(read_meta(disk).directory_id.bytes)
        for asked in [*identities] if key is None else [key]:
            known = self._wounds.get((node_id, asked))
            lost = identities.get(asked) if is_lost else None
            # Of several identities that were lost there, one after the other, only the last could come back.
            if known is None or known.repaired_s is not None or known.lost is None or lost is not None:
                self._wounds[node_id, asked] = Wound(lost)

    def is_damaged(self, node_id: int, key: GroupKey) -> bool:
        if self._has_corrupt_journal(node_id):
            return True  # also of groups that came later: all votes go with it
        wound = self._wounds.get((node_id, key))
        if wound is None or wound.repaired_s is not None:
            return False
        if not self._is_repaired(node_id, key, wound):
            return True
        wound.repaired_s = self._cluster.loop.time()
        return False

    def _has_corrupt_journal(self, node_id: int) -> bool:
        """And has not met it yet."""
        disk = self._cluster.disks[node_id]
        return bool(disk.corrupt_positions(f"{disk.root}/{JOURNAL_NAME}"))

    def may_have_served_corruption(self, node_id: int, key: GroupKey) -> bool:
        """What this node's copy gave to clients in the last seconds may be anything: a fetch is answered with the bytes
        of the file as they lie, and to check the CRC is the reader's part."""
        at = (node_id, key)
        if at not in self._sound_since_s:
            return False
        with looking_on():  # clients ask
            is_corrupt = any(path.endswith(LOG_SUFFIX) for path in self.corrupt_parts(node_id, key))
        now = self._cluster.loop.time()
        since_s = self._sound_since_s[at]
        if is_corrupt or since_s is None:
            self._sound_since_s[at] = None if is_corrupt else now
            return True
        return now < since_s + ANSWERS_LAST_S

    def _is_repaired(self, node_id: int, key: GroupKey, wound: Wound) -> bool:
        node = self._cluster.nodes.get(node_id)
        replica = None if node is None or not hasattr(node, "replicas") else node.replicas.by_key.get(key)
        if replica is None or replica.group.self_id == wound.lost:
            return False
        newest = max(self._replicas(key), key=lambda other: other.group.commit_end)
        return (
            replica.group.self_id in newest.group.committed_configuration.voters
            and min(replica.group.commit_end, replica.group.persisted_end) >= self._committed.get(key, 0)
            and not self.corrupt_parts(node_id, key)
        )

    def _replicas(self, key: GroupKey) -> Sequence[Replica]:
        return list(self._cluster.holders(key).values())

    def corrupt_parts(self, node_id: int, key: GroupKey) -> list[str]:
        """Files that a replica of this group rests on and that are corrupt. Indexes are not among them: they can be
        rebuilt, and whoever uses one has to notice."""
        disk = self._cluster.disks[node_id]
        by_key = folders(disk)
        folder = by_key[key].path if key in by_key else None
        return [
            path
            for path in disk.corrupt_files()
            if path == f"{disk.root}/{JOURNAL_NAME}"
            or (
                path.rpartition("/")[0] in (folder, f"{folder}/{COMPACTED_NAME}")
                and not path.endswith((INDEX_SUFFIX, TIME_INDEX_SUFFIX))
            )
        ]

    # -- what it explains ------------------------------------------------------------------------------------

    def explains(self, node_id: int, error: BaseException) -> bool:
        """Whether a node may end because of this: replication.md section 2 says which errors end one."""
        cause: BaseException | None = error
        while cause is not None:
            if isinstance(cause, InjectedError | VanishedError):
                return True
            if isinstance(cause, DiskFullError):
                return self._cluster.disks[node_id].faults.capacity_bytes < UNLIMITED_BYTES
            cause = cause.__cause__
        return isinstance(error, StartError | RestartError) and (node_id, METADATA_KEY) in self._wounds

    # -- after everything healed -----------------------------------------------------------------------------

    def reveal(self) -> None:
        """Have the product read the corrupt files that it has not read yet; there is no scrubber. For a corrupt log, a
        follower's refusal is imitated, or a pass of compaction, which alone reads below the log start. For a lineage or
        a journal, the node is started again. A corrupt snapshot is left until somebody needs it."""
        for node_id in self._cluster.alive():
            disk = self._cluster.disks[node_id]
            corrupt = [path for path in disk.corrupt_files() if not path.endswith(SNAPSHOT_SUFFIX)]
            by_path = {folder.path: key for key, folder in folders(disk).items()}
            names = [
                path
                for path in corrupt
                if path == f"{disk.root}/{JOURNAL_NAME}" or path.endswith("/" + LINEAGE_NAME)
            ]
            if any(path.rpartition("/")[0] in {*by_path, disk.root} for path in names):
                self._cluster.kill(node_id)
                self._cluster.start(node_id)
                continue
            for path in corrupt:
                key = by_path.get(path.rpartition("/")[0])
                if key is not None:
                    self._refuse(node_id, key, path)

    def _refuse(self, node_id: int, key: GroupKey, path: str) -> None:
        replica = self._cluster.holders(key).get(node_id)
        if replica is None:
            return
        log = replica.log
        positions = self._cluster.disks[node_id].corrupt_positions(path)
        for batch in log.batches(log.first_stored_offset):
            end = batch.position + batch.header.size_bytes
            if batch.file.path == path and any(batch.position <= at < end for at in positions):
                replicas = self._cluster.nodes[node_id].replicas
                process = self._cluster.loop.process(f"n{node_id}")
                assert process is not None
                if batch.header.next_offset <= log.start_offset:
                    process.call(
                        replicas.log_corrupt, replica, CorruptLogError(path, batch.position, "found")
                    )
                else:
                    index = log.lineage.index_of(batch.header.base_offset)
                    process.call(replicas.range_refused, replica, replica.group.self_id, index)
                return
