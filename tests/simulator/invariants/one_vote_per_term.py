"""Each identity votes for at most one candidate in a term, for ever, restarts included; only members vote; and who
leads was voted for by a majority of the voters of its configuration, identities compared (Raft, sections 5.2 and 6;
replication.md section 3)."""

from __future__ import annotations

from broker.replication import wire
from broker.replication.replica import Replica
from raft.types import ReplicaId, RowKind
from storage.log_types import GroupKey

#: A candidate as votes name it: node and directory.
Directory = tuple[int, bytes]


class OneVotePerTerm:
    def __init__(self) -> None:
        self._votes: dict[tuple[GroupKey, ReplicaId, int], Directory] = {}
        #: Terms whose election was looked at.
        self._won: dict[tuple[GroupKey, int], None] = {}

    def voted(self, key: GroupKey, voter: ReplicaId, term: int, candidate: Directory) -> None:
        """A granted vote leaves its voter, or a candidate asks for others' with its own behind it."""
        known = self._votes.setdefault((key, voter, term), candidate)
        assert known == candidate, f"{voter} of {key} votes for {known} and for {candidate} in term {term}"

    def check_member(self, replica: Replica) -> None:
        """It votes or campaigns: some configuration in its log names it."""
        configurations = [
            wire.decode_configuration(row.payload)[0]
            for row in replica.log.lineage.rows
            if row.kind == RowKind.CONFIGURATION
        ]
        identity = replica.group.self_id
        assert any(configuration.names(identity) for configuration in configurations), (
            f"{identity} takes part in an election of {replica.key}, and is no member in {configurations}"
        )

    def won(self, replica: Replica) -> None:
        """It leads: count again."""
        group, key = replica.group, replica.key
        if (key, group.term) in self._won:
            return
        self._won[key, group.term] = None
        own = (group.self_id.node_id, group.self_id.directory_id)
        voters = group.configuration.voters
        if group.self_id in voters:
            self.voted(key, group.self_id, group.term, own)
        granted = [voter for voter in voters if self._votes.get((key, voter, group.term)) == own]
        assert 2 * len(granted) > len(voters), (
            f"{group.self_id} leads {key} in term {group.term} with the votes of {granted}, of {voters}"
        )
