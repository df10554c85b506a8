"""The commit index, and with it the high watermark, never passes what a majority of the configuration's voters hold
durably, by their disks; only a leader counts, and only entries of its own term (Raft, section 5.4.2 and figure 3;
replication.md section 6)."""

from __future__ import annotations

from broker.replication.replica import Replica
from raft.types import ReplicaId
from storage.log_types import GroupKey
from tests.simulator.durable_log import DurableLogs
from tests.simulator.invariants.acknowledged_is_durable import AcknowledgedIsDurable
from tests.simulator.invariants.identity_kept import IdentityKept


class CommittedIsDurable:
    def __init__(
        self, durable: DurableLogs, acknowledged: AcknowledgedIsDurable, identities: IdentityKept
    ) -> None:
        self._durable = durable
        self._acknowledged = acknowledged
        self._identities = identities
        #: By group: the highest commit index that a leader has counted.
        self._counted: dict[GroupKey, int] = {}

    def committed(self, replica: Replica) -> None:
        """Its commit index rose."""
        group = replica.group
        assert replica.high_watermark == replica.log.lineage.offset_of_index(group.commit_end)
        if group.commit_end <= self._counted.get(replica.key, 0):
            return
        # A leader that commits its own removal follows already when this is told.
        name = f"{group.self_id} of {replica.topic}-{replica.partition} commits {group.commit_end} in term {group.term}"
        assert replica.is_leader or group.self_id not in group.configuration.voters, (
            f"{name}; no leader has counted beyond {self._counted.get(replica.key, 0)}"
        )
        term = replica.log.lineage.term_at_index(group.commit_end - 1)
        assert term == group.term, f"{name} by counting an entry of term {term}"
        voters = group.configuration.voters
        holding = [voter for voter in voters if self._holds(replica, voter, term)]
        assert 2 * len(holding) > len(voters), f"{name}; it is durable on {holding}, of {voters}"
        self._counted[replica.key] = group.commit_end

    def _holds(self, replica: Replica, voter: ReplicaId, term: int) -> bool:
        end_index = replica.group.commit_end
        if not self._identities.is_intact(replica.key, voter):
            # Its disk is gone. What it acknowledged before that may still be counted.
            return self._acknowledged.has_acknowledged(replica.key, voter, end_index)
        durable = self._durable.of(voter.node_id, replica.topic, replica.key)
        return durable is not None and durable.holds(end_index, term)
