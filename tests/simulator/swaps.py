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
        return self.last_swapped(log) is not None

    def last_swapped(self, log: Log) -> int | None:
        """Since the last call: where the last segment begins that took the place of another. None: there is none, or
        the log is new."""
        seen = self._seen.get(log)
        if seen == log._segments:
            return None
        self._seen[log] = list(log._segments)
        if not seen:
            return None
        # What comes by itself begins above all that was there; what goes by itself leaves nothing in its place.
        last_base = seen[-1].base_offset
        swapped = (x.base_offset for x in log._segments if x.base_offset <= last_base and x not in seen)
        return max(swapped, default=None)
