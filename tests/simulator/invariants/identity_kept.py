"""A replica loses its identity only with its disk or by corruption of it (replication.md sections 2 and 3): not by any
crash, which would cost the group a copy that it has."""

from __future__ import annotations

from broker.replication.replica import Replica
from raft.types import ReplicaId
from storage.log_types import GroupKey


class IdentityKept:
    def __init__(self) -> None:
        #: Who was seen last, by node. Nobody where the disk is another one since.
        self._current: dict[tuple[int, GroupKey], ReplicaId] = {}
        #: Whose log has corrupt bytes, known to it or not.
        self._damaged: dict[tuple[GroupKey, ReplicaId], None] = {}
        #: The same, of replicas that were given up. One that is added again at once goes on with its folder (seed
        #: 132976617202).
        self._damaged_folders: dict[tuple[int, GroupKey], None] = {}
        #: Directories whose journal has corrupt bytes: all that votes under them may end with it, also groups that
        #: came later.
        self._forgetful: dict[bytes, None] = {}

    def disk_lost(self, node_id: int) -> None:
        """All of its contents are gone."""
        for of_replicas in (self._current, self._damaged_folders):
            for at in [at for at in of_replicas if at[0] == node_id]:
                del of_replicas[at]

    def damaged(self, node_id: int, key: GroupKey) -> None:
        """Bytes of that log are corrupt: whoever owns it may give it up, now or when it is read."""
        identity = self._current.get((node_id, key))
        if identity is not None:
            self._damaged[key, identity] = None
        else:
            self._damaged_folders[node_id, key] = None

    def journal_damaged(self, directory_id: bytes) -> None:
        self._forgetful[directory_id] = None

    def given_up(self, node_id: int, key: GroupKey) -> None:
        """The replica was taken off this node."""
        self._current.pop((node_id, key), None)

    def opened(self, replica: Replica) -> None:
        identity = replica.group.self_id
        at = (identity.node_id, replica.key)
        if at in self._damaged_folders:
            del self._damaged_folders[at]
            self._damaged[replica.key, identity] = None
        known = self._current.get(at, identity)
        is_excused = (replica.key, known) in self._damaged or known.directory_id in self._forgetful
        assert known == identity or is_excused, (
            f"{known} of {replica.topic}-{replica.partition} comes back as {identity}"
        )
        self._current[at] = identity

    def is_intact(self, key: GroupKey, identity: ReplicaId) -> bool:
        """The disk of that identity is there and good."""
        is_current = self._current.get((identity.node_id, key)) == identity
        is_sound = (key, identity) not in self._damaged and identity.directory_id not in self._forgetful
        return is_current and is_sound
