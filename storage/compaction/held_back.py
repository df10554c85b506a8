"""What a pass left to be removed later: by what it counted, or, after a restart, by the headers of the log."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import NamedTuple

from protocol.records.batch import BatchHeader
from storage.compaction.counts import Expiry, PassCounts
from storage.compaction.rewriting import has_horizon


class HeldBack(NamedTuple):
    """The first of each kind. None: there is none."""

    tombstones: Expiry | None = None
    markers: Expiry | None = None
    remnants: Expiry | None = None

    @classmethod
    def by(cls, counts: PassCounts) -> HeldBack:
        return cls(counts.tombstones.first, counts.markers.first, counts.remnants.first)

    @property
    def has_all(self) -> bool:
        return None not in self

    def with_batch(self, header: BatchHeader, pinned: AbstractSet[int]) -> HeldBack:
        """After one more batch of the log, in order. `pinned`: last offsets of batches that stay without records.

        A batch of data may have lost its tombstones to newer values, and its header does not tell. A pass that is made
        for it finds that out.
        """
        if not has_horizon(header):
            return self
        expiry = Expiry(header.base_timestamp, header.next_offset)
        if header.is_control and header.count:
            return self._replace(markers=self.markers or expiry)
        if header.is_control and header.last_offset not in pinned:
            return self._replace(remnants=self.remnants or expiry)
        if header.count and not header.is_control:
            return self._replace(tombstones=self.tombstones or expiry)
        return self
