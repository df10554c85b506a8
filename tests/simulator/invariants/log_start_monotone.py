"""A replica's log start never goes back, not over restarts either, and never passes the high watermark (replication.md
section 6): what is deleted stays deleted, and only what is committed can be."""

from __future__ import annotations

from broker.replication.replica import Replica
from raft.types import ReplicaId
from storage.log_types import GroupKey


class LogStartMonotone:
    def __init__(self) -> None:
        self._starts: dict[tuple[GroupKey, ReplicaId], int] = {}

    def check(self, replica: Replica) -> None:
        at, start = (replica.key, replica.group.self_id), replica.log.start_offset
        known = self._starts.get(at, 0)
        name = f"{replica.group.self_id} of {replica.topic}-{replica.partition}"
        assert start >= known, f"{name}: log start {known} falls to {start}"
        assert start <= replica.high_watermark, (
            f"{name}: log start {start}, high watermark {replica.high_watermark}"
        )
        self._starts[at] = start
