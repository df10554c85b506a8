"""ListOffsets is linearizable (replication.md section 6, ReadIndex): "latest" is never below what was acknowledged, or
shown to anybody, before it was asked, and never above what is committed."""

from __future__ import annotations

from storage.log_types import GroupKey
from tests.simulator.invariants.acknowledged_never_lost import AcknowledgedNeverLost


class LatestCoversPromises:
    def __init__(self, acknowledged: AcknowledgedNeverLost) -> None:
        self._acknowledged = acknowledged
        #: By group, the highest high watermark of any replica at any time.
        self._committed_ends: dict[GroupKey, int] = {}

    def committed(self, key: GroupKey, end_offset: int) -> None:
        if end_offset > self._committed_ends.get(key, 0):
            self._committed_ends[key] = end_offset

    def floor(self, key: GroupKey) -> int:
        """What a request that is sent now must not be answered below."""
        return self._acknowledged.ends.get(key, 0)

    def answered(self, key: GroupKey, floor: int, offset: int) -> None:
        """`floor` is of the moment of the request."""
        assert offset >= floor, f"latest of {key} is {offset}, acknowledged before was all below {floor}"
        self.check_committed(key, offset)

    def check_committed(self, key: GroupKey, high_watermark: int) -> None:
        """Of any high watermark that a client is shown."""
        committed = self._committed_ends.get(key, 0)
        assert high_watermark <= committed, (
            f"{key} is shown up to {high_watermark}, committed up to {committed}"
        )
