"""Whether compaction has put other segments into a log since it was looked at."""

from __future__ import annotations

from collections.abc import Sequence

from storage.log import Log
from storage.segment import Segment


class SwapWatch:
    """Of whoever walks a log once and goes on from there: it has to begin again. Segments are compared by identity, so
    one that takes the place of another is noticed whatever is in it."""

    def __init__(self) -> None:
        self._seen: dict[Log, Sequence[Segment]] = {}

    def has_swapped(self, log: Log) -> bool:
        """Since the last call. Of a log that is new: no."""
        seen = self._seen.get(log)
        if seen == log._segments:
            return False
        self._seen[log] = list(log._segments)
        if not seen:
            return False
        # What comes by itself begins above all that was there; what goes by itself leaves nothing in its place.
        last_base = seen[-1].base_offset
        return any(segment.base_offset <= last_base and segment not in seen for segment in log._segments)
