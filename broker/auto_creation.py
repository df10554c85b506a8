"""Topics that a client's question made here, until they can be used.

Apache Kafka shows a new topic together with its leaders. Here the replicas of a new partition elect one a moment after
the topic is there, and a client that sees the topic before may be confused: kafka-python's producer waits until
max.block.ms has passed. So to those who ask this node, the topic stays as unknown as it was, until it has leaders.
"""

from __future__ import annotations

#: A topic whose leaders take longer is shown as it is.
HIDDEN_S = 5.0
#: More topics than this at a time are not hidden: clients choose how many names they ask for.
MAX_HIDDEN = 1000


class AutoCreation:
    """Invariant: `_since` holds at most MAX_HIDDEN names, in the order of their times."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    def begin(self, names: list[str], now: float) -> list[str]:
        """`names` are asked for and missing: those to create, without those whose creation is under way."""
        self._forget_old(now)
        fresh = [name for name in names if name not in self._since]
        for name in fresh[: MAX_HIDDEN - len(self._since)]:
            self._since[name] = now
        return fresh

    def is_hidden(self, name: str, has_leaders: bool, now: float) -> bool:
        """Whether a topic that is there is not shown yet. `has_leaders`: each partition has one that serves."""
        if has_leaders:
            self._since.pop(name, None)
        self._forget_old(now)
        return name in self._since

    def failed(self, name: str) -> None:
        """It was not created: who asks next may try again at once."""
        self._since.pop(name, None)

    def _forget_old(self, now: float) -> None:
        for name, since in list(self._since.items()):
            if now - since < HIDDEN_S:
                return
            del self._since[name]
