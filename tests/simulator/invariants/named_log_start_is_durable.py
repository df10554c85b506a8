"""A follower names a log start to its leader only when that is durable on its disk (replication.md section 6): a leader
shows what a majority has named, and deletes below it."""

from __future__ import annotations

from collections.abc import Mapping

from broker.replication.replica import Replica
from raft.types import ReplicaId
from storage.log_types import GroupKey
from tests.simulator.disk import MemoryDisk
from tests.simulator.durable_journal import durable_journal
from tests.simulator.durable_log import DurableLogs


class NamedLogStartIsDurable:
    def __init__(self, disks: Mapping[int, MemoryDisk], logs: DurableLogs) -> None:
        self._disks = disks
        self._logs = logs
        #: What was found durable of each log, and is not looked for again.
        self._durable: dict[tuple[GroupKey, ReplicaId], int] = {}

    def named(self, replica: Replica, log_start: int) -> None:
        at = replica.key, replica.group.self_id
        if log_start <= self._durable.get(at, 0):
            return
        node_id = replica.group.self_id.node_id
        state = durable_journal(self._disks[node_id]).get(replica.key)
        recorded = 0 if state is None or state.bounds is None else state.bounds.log_start
        # A log that a snapshot install made begins where its first segment does.
        durable = max(recorded, self._logs.start_offset(node_id, replica.topic, replica.key))
        assert log_start <= durable, (
            f"{replica.group.self_id} of {replica.topic}-{replica.partition} names the log start {log_start}; "
            f"durable is {durable}"
        )
        self._durable[at] = durable
