"""Topics that are new, until they have leaders: clients whose questions make topics do not see them before.

Apache Kafka shows a new topic together with its leaders. Here the replicas of a new partition elect one a moment after
the topic is there, and a producer that sees the topic before may be confused: kafka-python's waits until max.block.ms
has passed. Administrators see what there is, and who creates a topic is answered when it has leaders (leader_waits.py).
"""

from __future__ import annotations

#: A topic whose leaders take longer is shown as it is, and who waits for it is answered.
HIDDEN_S = 5.0
#: If so many topics are made at a time, the others are shown as they are.
MAX_HIDDEN = 1000


class NewTopics:
    """Invariant: `_since` holds at most MAX_HIDDEN names, in the order of their times."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    def appeared(self, name: str, now: float) -> None:
        """A topic was created."""
        self._drop_old(now)
        # A topic that was deleted and created again goes to the end.
        self._since.pop(name, None)
        if len(self._since) < MAX_HIDDEN:
            self._since[name] = now

    def is_hidden(self, name: str, has_leaders: bool, now: float) -> bool:
        """Whether a topic that is there is not shown yet. `has_leaders`: each partition has one that serves."""
        self._drop_old(now)
        if has_leaders:
            self._since.pop(name, None)
        return name in self._since

    def _drop_old(self, now: float) -> None:
        while self._since:
            oldest = next(iter(self._since))
            if now - self._since[oldest] < HIDDEN_S:
                return
            del self._since[oldest]
