"""No end that a node records, or goes by, is above what is durable on its disk: the journal's (it tells corruption from
a torn write), the log's, the group's (replication.md section 2, "torn or corrupt")."""

from __future__ import annotations

from broker.replication.replica import Replica
from storage.journal import Journal
from storage.log import Log
from tests.simulator.durable_log import DurableLogs


class RecordedIsDurable:
    def __init__(self, durable: DurableLogs) -> None:
        self._durable = durable
        #: Of each log: the highest end that was compared, and after how many truncations.
        self._compared: dict[Log, tuple[int, int]] = {}

    def scan(self, replica: Replica, journal: Journal) -> None:
        log, state = replica.log, journal.state(replica.key)
        recorded = 0 if state is None or state.flushed_end is None else state.flushed_end.end_index
        flushed, persisted = log.flushed_end.end_index, replica.group.persisted_end
        end_index = max(recorded, flushed, persisted)
        if self._compared.get(log) == (end_index, log.truncation_count) or end_index == 0:
            return
        durable = self._durable.of(replica.group.self_id.node_id, replica.topic, replica.key)
        assert durable is not None and end_index <= durable.end_index, (
            f"{log.directory}: recorded {recorded}, flushed {flushed}, persisted {persisted}; durable are "
            f"{None if durable is None else durable.end_index}"
        )
        self._compared[log] = (end_index, log.truncation_count)
