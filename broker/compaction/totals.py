"""What the passes of compaction of a node have done together: numbers for `broker.metrics`."""

from __future__ import annotations

from storage.durations import Durations


class CompactionTotals:
    """Since the node was started. All numbers only rise."""

    def __init__(self) -> None:
        #: Of the passes that came to an end.
        self.durations = Durations()
        #: By how much they have made logs smaller.
        self.removed_bytes = 0
        #: Passes that could not be made, or came to no end. They are tried again.
        self.failure_count = 0

    def pass_over(self, elapsed_s: float, removed_bytes: int) -> None:
        """A few bytes may be added to a log that had nothing to remove."""
        self.durations.add(elapsed_s)
        self.removed_bytes += max(0, removed_bytes)
