"""Topics that are new, until they have leaders: clients whose questions make topics do not see them before.

Apache Kafka shows a new topic together with its leaders. Here the replicas of a new partition elect one a moment after
the topic is there, and a producer that sees the topic before may be confused: kafka-python's waits until max.block.ms
has passed. Administrators see what there is, and who creates a topic is answered when it can be used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from uuid import UUID

#: A topic whose leaders take longer is shown as it is.
HIDDEN_S = 5.0
#: If so many topics are made at a time, the others are shown as they are.
MAX_HIDDEN = 1000


@dataclass(eq=False)
class _Wait:
    #: Those that were not seen with a leader yet; looked at from the end.
    partitions: list[tuple[UUID, int]]
    deadline: float
    done: Callable[[], None]


class NewTopics:
    """Invariant: `_since` holds at most MAX_HIDDEN names, in the order of their times."""

    def __init__(self, is_led: Callable[[UUID, int], bool]) -> None:
        """`is_led`: whether a partition, by topic id and number, has a leader that serves."""
        self._is_led = is_led
        self._since: dict[str, float] = {}
        self._waits: list[_Wait] = []

    def wait_led(
        self, partitions: Sequence[tuple[UUID, int]], deadline: float, done: Callable[[], None]
    ) -> None:
        """Call `done` when each of them has had a leader, or at `deadline` (loop time); now where there is none to wait
        for."""
        self._waits.append(_Wait(list(partitions), deadline, done))
        self.leaders_changed()

    def leaders_changed(self) -> None:
        """Somebody leads that did not. Costs as much as there are waits, and what they have found."""
        if self._waits:
            self._finish([wait for wait in self._waits if self._has_leaders(wait)])

    def tick(self, now: float) -> None:
        self._finish([wait for wait in self._waits if wait.deadline <= now])

    def _has_leaders(self, wait: _Wait) -> bool:
        while wait.partitions and self._is_led(*wait.partitions[-1]):
            wait.partitions.pop()
        return not wait.partitions

    def _finish(self, over: list[_Wait]) -> None:
        for wait in over:
            self._waits.remove(wait)
        for wait in over:
            wait.done()

    def appeared(self, name: str, now: float) -> None:
        self._forget_old(now)
        if len(self._since) < MAX_HIDDEN:
            self._since[name] = now

    def is_hidden(self, name: str, has_leaders: bool, now: float) -> bool:
        """Whether a topic that is there is not shown yet. `has_leaders`: each partition has one that serves."""
        self._forget_old(now)
        if has_leaders:
            self._since.pop(name, None)
        return name in self._since

    def _forget_old(self, now: float) -> None:
        while self._since:
            oldest = next(iter(self._since))
            if now - self._since[oldest] < HIDDEN_S:
                return
            del self._since[oldest]
