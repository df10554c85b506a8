"""A follower answers its leader in a term only when that term is durable on its disk (Raft, figure 2: persistent state
is updated before responding): as what it promised, in the journal, or as a row, which recovery believes as well."""

from __future__ import annotations

from collections.abc import Mapping

from broker.replication.replica import Replica
from raft.types import ReplicaId
from storage.log_types import GroupKey
from tests.simulator.disk import MemoryDisk
from tests.simulator.durable_journal import durable_journal
from tests.simulator.durable_log import DurableLogs


class AnsweredTermIsDurable:
    def __init__(self, disks: Mapping[int, MemoryDisk], logs: DurableLogs) -> None:
        self._disks = disks
        self._logs = logs
        #: What was found durable of each replica, and is not looked for again.
        self._durable: dict[tuple[GroupKey, ReplicaId], int] = {}

    def answered(self, replica: Replica, term: int) -> None:
        at = replica.key, replica.group.self_id
        known = self._durable.get(at)
        if known is not None and term <= known:
            return
        node_id = replica.group.self_id.node_id
        state = durable_journal(self._disks[node_id]).get(replica.key)
        log = self._logs.of(node_id, replica.topic, replica.key)
        terms = [] if state is None or not state.has_vote else [state.term]
        if log is not None:
            terms += [row.term for row in log.lineage.rows[-1:]]
        durable = max(terms, default=None)
        assert durable is not None and term <= durable, (
            f"{replica.group.self_id} of {replica.topic}-{replica.partition} answers in term {term}; "
            f"durable is {durable}"
        )
        self._durable[at] = durable
