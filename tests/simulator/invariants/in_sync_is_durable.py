"""What is acknowledged with acks=all is durable on min.insync.replicas voters, by their disks, also where that is more
than a majority (replication.md section 6, "Acks"; min.insync.replicas in Kafka's documentation)."""

from __future__ import annotations

from collections.abc import Mapping

from storage.log_types import GroupKey
from tests.simulator.disk import MemoryDisk
from tests.simulator.durable_log import DurableLogs
from tests.simulator.invariants.acknowledged_is_durable import AcknowledgedIsDurable


class InSyncIsDurable:
    def __init__(
        self,
        disks: Mapping[int, MemoryDisk],
        durable: DurableLogs,
        acknowledged: AcknowledgedIsDurable,
    ) -> None:
        self._disks = disks
        self._durable = durable
        self._acknowledged = acknowledged
        #: Nodes that have lost something that was durable: what their disks hold proves nothing against them.
        self._damaged: dict[int, None] = {}

    def damaged(self, node_id: int) -> None:
        """A disk was lost, or holds corrupt data."""
        self._damaged[node_id] = None

    def told(self, key: GroupKey, topic: str, last_offset: int, term: int, required: int) -> None:
        """A producer was told that a batch of this term is safe. `required`: the topic's min.insync.replicas. A replica
        that was taken away since counts by what it had acknowledged."""
        logs = {node_id: self._durable.of(node_id, topic, key) for node_id in self._disks}
        end_indexes = {
            log.lineage.index_of(last_offset) + 1
            for log in logs.values()
            if log is not None and log.lineage.rows and log.lineage.term_at_offset(last_offset) == term
        }
        for end_index in end_indexes:
            on_disk = {x for x, log in logs.items() if log is not None and log.holds(end_index, term)}
            holding = on_disk | self._acknowledged.nodes_with(key, end_index) | self._damaged.keys()
            assert len(holding) >= required, (
                f"{key}: {last_offset} of term {term} is acknowledged and durable on the nodes {sorted(holding)}, "
                f"min.insync.replicas is {required}"
            )
