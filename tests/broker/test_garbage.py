"""A full search for dead objects comes after replicas were closed, and not once for each of them."""

from __future__ import annotations

from broker.garbage import COLLECT_AFTER_REPLICAS, COLLECT_AFTER_S, DeadReplicas
from tests.simulator.loop import new_loop


def test_replicas_that_are_closed_together_are_one_search() -> None:
    loop, searches = new_loop(), list[float]()
    dead = DeadReplicas(loop, lambda: searches.append(loop.time()))
    for number in range(10):
        dead.closed(number)
    loop.run_for(COLLECT_AFTER_S - 1)
    assert searches == [], "whoever closed them may still use them"
    loop.run_for(2)
    assert len(searches) == 1
    loop.run_for(10 * COLLECT_AFTER_S)
    assert len(searches) == 1, "nothing was closed since"


def test_many_dead_replicas_do_not_wait() -> None:
    loop, searches = new_loop(), list[float]()
    dead = DeadReplicas(loop, lambda: searches.append(loop.time()))
    for number in range(COLLECT_AFTER_REPLICAS):
        dead.closed(number)
    loop.run_for(1)
    assert len(searches) == 1
    loop.run_for(2 * COLLECT_AFTER_S)
    assert len(searches) == 1
