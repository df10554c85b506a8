"""The timer heap of all groups. A group fires once, at the deadline that was set last; groups fire in order."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from broker.scheduling.timers import TimerHeap
from tests.simulator.loop import SimulatedLoop, new_loop


@pytest.fixture
def loop() -> Iterator[SimulatedLoop]:
    made = new_loop()
    yield made
    made.close()


class Group:
    """Logs when it fires. Sets its next deadline `again_s` later, if that is given."""

    def __init__(self, heap: TimerHeap, loop: SimulatedLoop, log: list[tuple[str, float]], name: str) -> None:
        self.timer_at: float | None = None
        self.again_s: float | None = None
        self._heap, self._loop, self._log, self._name = heap, loop, log, name
        self._begun_s = loop.time()

    def set(self, after_s: float | None) -> None:
        self._heap.set(self, None if after_s is None else self._begun_s + after_s)

    def timer_fired(self) -> None:
        self._log.append((self._name, self._loop.time() - self._begun_s))
        if self.again_s is not None:
            self._heap.set(self, self._loop.time() + self.again_s)


class Groups:
    def __init__(self, loop: SimulatedLoop) -> None:
        self.loop = loop
        self.heap = TimerHeap(loop)
        self.log: list[tuple[str, float]] = []
        self.a, self.b = (Group(self.heap, loop, self.log, name) for name in "ab")

    def run(self, seconds: float) -> list[tuple[str, float]]:
        self.loop.run_for(seconds)
        return self.log


def test_deadlines_fire_in_the_order_of_time(loop: SimulatedLoop) -> None:
    groups = Groups(loop)
    groups.a.set(2)
    groups.b.set(1)
    assert groups.run(5) == [("b", 1), ("a", 2)]


def test_the_deadline_that_was_set_last_fires(loop: SimulatedLoop) -> None:
    groups = Groups(loop)
    groups.a.set(1)
    groups.a.set(3)  # later
    groups.b.set(3)
    groups.b.set(2)  # sooner
    assert groups.run(5) == [("b", 2), ("a", 3)]


def test_no_deadline_means_no_call(loop: SimulatedLoop) -> None:
    groups = Groups(loop)
    groups.a.set(1)
    groups.a.set(None)
    assert groups.run(5) == []
    groups.a.set(6)
    assert groups.run(5) == [("a", 6)]


def test_a_deadline_that_is_changed_and_set_again_fires_once(loop: SimulatedLoop) -> None:
    """Two entries of the heap then name the valid deadline."""
    groups = Groups(loop)
    for after_s in (1, 2, 1):
        groups.a.set(after_s)
    assert groups.run(5) == [("a", 1)]


def test_a_group_may_set_its_next_deadline_while_it_fires(loop: SimulatedLoop) -> None:
    groups = Groups(loop)
    groups.a.again_s = 1
    groups.a.set(1)
    groups.b.set(2.5)
    assert groups.run(3.2) == [("a", 1), ("a", 2), ("b", 2.5), ("a", 3)]


def test_a_deadline_that_has_passed_fires_at_once(loop: SimulatedLoop) -> None:
    groups = Groups(loop)
    groups.run(2)
    groups.a.set(1)
    assert groups.run(0.001) == [("a", 2)]


def test_nothing_fires_after_close(loop: SimulatedLoop) -> None:
    groups = Groups(loop)
    groups.a.set(1)
    groups.heap.close()
    assert groups.run(5) == []
