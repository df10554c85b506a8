"""Finding the aborted transactions of old segments, for readers of committed data.

The index of a sealed segment is read, and compared with the log, when somebody asks for the first time. Readers wait
meanwhile: without it they would be sent records of aborted transactions.
"""

from __future__ import annotations

from broker.replication.replica import Replica
from broker.replication.replicas import Replicas
from broker.scheduling.background import Background, Steps
from storage.aborted_index import AbortedTransaction
from storage.aborted_loading import load_aborted
from storage.aborted_transactions import AbortedIndexMissingError
from storage.errors import CorruptLogError
from storage.log_types import GroupKey


class AbortedLoads:
    def __init__(self, replicas: Replicas, background: Background) -> None:
        self._replicas = replicas
        self._background = background
        #: Partitions for which a segment is being looked at.
        self._running: set[GroupKey] = set()

    def aborted_between(
        self, replica: Replica, from_offset: int, below_offset: int
    ) -> list[AbortedTransaction] | None:
        """As `Log.aborted_between`. None: that is not known yet. Who waits for the partition is woken when it is."""
        last_missing = -1
        while True:
            try:
                return replica.log.aborted_between(from_offset, below_offset)
            except AbortedIndexMissingError as missing:
                if replica.key in self._running or missing.base_offset == last_missing:
                    return None
                last_missing = missing.base_offset
            self._running.add(replica.key)
            # Often this is done when it returns: then nobody need wait.
            self._background.run(self._load(replica, last_missing))

    def _load(self, replica: Replica, base_offset: int) -> Steps:
        log = replica.log
        try:
            for step in load_aborted(log, base_offset):
                yield step
                if not replica.is_open or replica.log is not log:
                    break
        except CorruptLogError as error:
            self._replicas.log_corrupt(replica, error)
        self._running.discard(replica.key)
        replica.waits.wake_fetches()
