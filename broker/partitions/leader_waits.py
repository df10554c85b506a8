"""Waiting until partitions have leaders, for administrators that created topics or partitions, or asked for elections.

Event-driven: every leader that this node hears of is told here. A tick looks as well, for deadlines, and since a
leader may be heard of before the node it is on is known to be alive.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from uuid import UUID

from broker.partitions.new_topics import HIDDEN_S
from broker.scheduling.background import Background, Steps
from broker.scheduling.ticks import SLOW_TICK_S, Ticks
from storage.log_types import GroupKey


@dataclass(eq=False)
class _Wait:
    #: Partition -> who is to lead it (None: anybody), of those that were not seen so; looked at from the end.
    missing: list[tuple[GroupKey, int | None]]
    deadline: float
    done: Callable[[frozenset[GroupKey]], None]
    #: Steps that look at it are under way.
    is_looked_at: bool = False


class LeaderWaits:
    def __init__(
        self, leader_of: Callable[[UUID, int], tuple[int, int]], background: Background, ticks: Ticks
    ) -> None:
        """`leader_of`: the node that leads a partition and serves, -1: nobody; and its leader epoch."""
        self._leader_of = leader_of
        self._background = background
        self._waits: dict[_Wait, None] = {}
        ticks.every(SLOW_TICK_S, self.tick)

    def wait_for_leaders(
        self,
        wanted: Mapping[GroupKey, int | None],
        deadline: float,
        done: Callable[[frozenset[GroupKey]], None],
    ) -> None:
        """Call `done` when each partition has been led by its node (None: by any), or at `deadline` (loop time); now
        where that is so already. It is told which partitions are not led so."""
        wait = _Wait(list(wanted.items()), deadline, done)
        self._waits[wait] = None
        wait.is_looked_at = True
        self._background.begin(self._look(wait, is_late=False))

    def wait_for_new_partitions(
        self, keys: list[GroupKey], began: float, timeout_ms: int, done: Callable[[], None]
    ) -> None:
        """Call `done` when these new partitions have leaders, or the client that asked for them at `began` (loop time)
        would wait no longer, and after HIDDEN_S in any case: they are there all the same."""
        deadline = began + min(timeout_ms / 1000, HIDDEN_S)
        self.wait_for_leaders(dict.fromkeys(keys if timeout_ms > 0 else []), deadline, lambda _: done())

    def leaders_changed(self) -> None:
        """Somebody leads that did not. Costs as much as there are waits, and what they have found."""
        for wait in list(self._waits):
            self._look_again(wait, is_late=False)

    def tick(self, now: float) -> None:
        for wait in list(self._waits):
            self._look_again(wait, is_late=wait.deadline <= now)

    def _look_again(self, wait: _Wait, *, is_late: bool) -> None:
        if not wait.is_looked_at:
            wait.is_looked_at = True
            self._background.run(self._look(wait, is_late=is_late))

    def _look(self, wait: _Wait, *, is_late: bool) -> Steps:
        """In steps, because thousands of partitions may be waited for."""
        while wait.missing and self._is_led(*wait.missing[-1]):
            wait.missing.pop()
            yield
        if wait.missing and not is_late:
            wait.is_looked_at = False
            return
        not_led: list[GroupKey] = []
        for key, wanted in wait.missing:
            if not self._is_led(key, wanted):
                not_led.append(key)
            yield
        del self._waits[wait]
        wait.done(frozenset(not_led))

    def _is_led(self, key: GroupKey, wanted: int | None) -> bool:
        leader, _ = self._leader_of(key.topic_id, key.partition)
        return leader >= 0 if wanted is None else leader == wanted
