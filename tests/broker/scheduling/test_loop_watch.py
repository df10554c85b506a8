"""How long the loop was kept busy, by the delay of a timer."""

from __future__ import annotations

from broker.scheduling.loop_watch import WINDOW_S, LoopWatch
from broker.scheduling.ticks import SLOW_TICK_S, Ticks
from tests.simulator.loop import new_loop


def test_a_loop_that_is_never_busy_has_no_stalls() -> None:
    loop = new_loop()
    ticks = Ticks(loop)
    watch = LoopWatch(loop.time(), ticks)
    ticks.start()
    loop.run_for(10.0)
    assert sum(watch.durations.counts) >= 190
    assert watch.longest_s < 0.001
    loop.close()


def test_a_stall_is_seen_but_for_an_interval_at_most() -> None:
    loop = new_loop()
    ticks = Ticks(loop)
    watch = LoopWatch(loop.time(), ticks)
    ticks.start()
    loop.run_for(1.02)
    loop.call_soon(loop.take_time, 0.4)
    loop.run_for(1.0)
    assert 0.4 - SLOW_TICK_S <= watch.longest_s <= 0.4
    # In the class of 2^18 to 2^19 us.
    assert watch.durations.counts[19] == 1
    loop.close()


def test_a_long_stall_is_forgotten_after_two_minutes() -> None:
    loop = new_loop()
    ticks = Ticks(loop)
    watch = LoopWatch(loop.time(), ticks)
    ticks.start()
    loop.call_soon(loop.take_time, 2.0)
    loop.run_for(WINDOW_S)
    assert watch.longest_s > 1.9
    loop.run_for(2 * WINDOW_S)
    assert watch.longest_s < 0.001
    loop.close()
