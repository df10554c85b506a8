"""The loop itself: asyncio's primitives work on it, and a killed node is dead at once."""

from __future__ import annotations

import asyncio
import gc
import socket
from collections.abc import Iterator

import pytest

from tests.simulator.clock import EPOCH_MS, SimulatedClock
from tests.simulator.loop import SimulatedLoop, SimulationError, SimulationTimeoutError, new_loop
from tests.simulator.process import NodeProcess


@pytest.fixture
def loop() -> Iterator[SimulatedLoop]:
    loop = new_loop(start_s=0.0)
    yield loop
    loop.close()


# -- asyncio on virtual time


def test_sleeping_costs_no_real_time_and_is_exact(loop: SimulatedLoop) -> None:
    async def sleeper() -> float:
        await asyncio.sleep(86_400)
        return asyncio.get_running_loop().time()

    assert loop.run_until_complete(sleeper()) == 86_400


def test_callbacks_are_first_in_first_out_and_timers_of_one_instant_keep_their_order(
    loop: SimulatedLoop,
) -> None:
    order: list[str] = []
    loop.call_at(1.0, order.append, "timer 1")
    loop.call_at(1.0, order.append, "timer 2")
    loop.call_at(0.5, order.append, "early timer")
    loop.call_soon(order.append, "soon 1")
    loop.call_soon(order.append, "soon 2")
    loop.run_for(1.0)
    assert order == ["soon 1", "soon 2", "early timer", "timer 1", "timer 2"]


def test_what_a_callback_schedules_belongs_to_the_next_turn(loop: SimulatedLoop) -> None:
    order: list[str] = []
    loop.call_soon(lambda: loop.call_soon(order.append, "of the next turn"))
    loop.call_soon(order.append, "of this turn")
    loop.run_for(0)
    assert order == ["of this turn", "of the next turn"]


def test_a_cancelled_callback_or_timer_does_not_run(loop: SimulatedLoop) -> None:
    ran: list[str] = []
    loop.call_soon(ran.append, "soon").cancel()
    handle = loop.call_later(1.0, ran.append, "later")
    assert handle.when() == 1.0
    handle.cancel()
    assert handle.cancelled()
    loop.run_for(2.0)
    assert ran == []


def test_asyncio_timeout_cancels_what_takes_too_long(loop: SimulatedLoop) -> None:
    async def late() -> str:
        try:
            async with asyncio.timeout(1.5):
                await asyncio.Event().wait()
        except TimeoutError:
            return f"timed out at {loop.time()}"
        return "not timed out"

    assert loop.run_until_complete(late()) == "timed out at 1.5"


def test_task_group_event_queue_and_wait_for_work(loop: SimulatedLoop) -> None:
    async def story() -> list[int]:
        queue: asyncio.Queue[int] = asyncio.Queue(maxsize=1)
        ready = asyncio.Event()
        got: list[int] = []

        async def produce() -> None:
            await ready.wait()
            for n in range(5):
                await queue.put(n)

        async def consume() -> None:
            ready.set()
            while len(got) < 5:
                got.append(await asyncio.wait_for(queue.get(), 1.0))

        async with asyncio.TaskGroup() as group:
            group.create_task(produce())
            group.create_task(consume())
        return got

    assert loop.run_until_complete(story()) == [0, 1, 2, 3, 4]


def test_a_failure_in_a_task_group_cancels_its_siblings(loop: SimulatedLoop) -> None:
    cleaned: list[str] = []

    async def waits() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.append("sibling")

    async def fails() -> None:
        await asyncio.sleep(1)
        raise ValueError("planted")

    async def story() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(waits())
            group.create_task(fails())

    with pytest.raises(ExceptionGroup) as caught:
        loop.run_until_complete(story())
    assert caught.value.subgroup(ValueError) is not None
    assert cleaned == ["sibling"]


def test_what_is_not_simulated_raises(loop: SimulatedLoop) -> None:
    async def escapes() -> None:
        with pytest.raises(NotImplementedError):
            await asyncio.to_thread(print)
        with pytest.raises(NotImplementedError):
            await asyncio.open_connection("127.0.0.1", 9)
        with pytest.raises(NotImplementedError):
            await asyncio.create_subprocess_exec("true")
        with socket.socket() as sock, pytest.raises(NotImplementedError):
            loop.add_reader(sock, print)

    loop.run_until_complete(escapes())


# -- running


def test_run_until_stops_where_the_condition_holds(loop: SimulatedLoop) -> None:
    ticks: list[float] = []

    def tick() -> None:
        ticks.append(loop.time())
        loop.call_later(1.0, tick)

    loop.call_later(1.0, tick)
    loop.run_until(lambda: len(ticks) == 3, limit_s=100)
    assert loop.time() == 3.0
    with pytest.raises(SimulationTimeoutError, match=r"10 s have passed"):
        loop.run_until(lambda: False, limit_s=10)


def test_run_until_says_when_nothing_is_left_to_happen(loop: SimulatedLoop) -> None:
    with pytest.raises(SimulationTimeoutError, match="nothing is left to happen"):
        loop.run_until(loop.create_future(), limit_s=1e9)


def test_time_that_does_not_advance_is_a_livelock(
    loop: SimulatedLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.simulator.loop.MAX_CALLBACKS_PER_INSTANT", 1000)

    def again() -> None:
        loop.call_soon(again)

    again()
    with pytest.raises(SimulationTimeoutError, match="livelock"):
        loop.run_for(1.0)


def test_an_unhandled_exception_ends_the_run_with_the_last_events(loop: SimulatedLoop) -> None:
    def breaks() -> None:
        raise ValueError("planted")

    loop.call_later(1.0, breaks)
    with pytest.raises(SimulationError, match=r"(?s)unhandled in .*breaks.*world#0.*breaks") as caught:
        loop.run_for(2.0)
    assert isinstance(caught.value.__cause__, ValueError)


def test_an_exception_of_a_task_that_nobody_awaits_ends_the_run(loop: SimulatedLoop) -> None:
    async def breaks() -> None:
        raise ValueError("planted")

    loop.world.create_task(breaks())
    loop.call_later(1.0, lambda: None)
    with pytest.raises(SimulationError, match="never retrieved"):
        loop.run_for(2.0)


def test_invariants_are_looked_at_after_every_callback(loop: SimulatedLoop) -> None:
    state: list[int] = []

    def invariant() -> None:
        assert len(state) < 3, "too many"

    loop.after_callback.append(invariant)
    for n in range(5):
        loop.call_soon(state.append, n)
    with pytest.raises(AssertionError, match="too many") as caught:
        loop.run_for(0)
    assert state == [0, 1, 2]
    assert "the last events" in caught.value.__notes__[0]


# -- nodes


def test_tasks_and_callbacks_inherit_their_node(loop: SimulatedLoop) -> None:
    node = loop.start_process("n1")

    async def child() -> None:
        await asyncio.sleep(0)

    async def main() -> None:
        await asyncio.create_task(child())

    node.create_task(main())
    loop.run_for(1)
    names = [line.split(maxsplit=1)[1] for line in loop.trace.recent() if "child" in line]
    assert len(names) == 2 and all(name.startswith("n1#1 ") for name in names)


def _busy_node(loop: SimulatedLoop, events: list[str]) -> NodeProcess:
    """A node with a waiting task, a ticking timer and a queued callback."""
    node = loop.start_process("n1")

    async def waits() -> None:
        try:
            await asyncio.sleep(5)
            events.append("woke")
        except asyncio.CancelledError:
            events.append("cancelled")
            raise
        finally:
            events.append("finally")

    def tick() -> None:
        events.append("tick")
        loop.call_later(1.0, tick)

    node.create_task(waits())
    node.call(loop.call_later, 1.0, tick)
    return node


def test_kill_drops_callbacks_timers_and_tasks_unrun(loop: SimulatedLoop) -> None:
    events: list[str] = []
    node = _busy_node(loop, events)
    loop.run_for(2.5)
    node.call(loop.call_soon, events.append, "queued")
    loop.kill(node)
    gc.collect()
    loop.run_for(100)
    assert events == ["tick", "tick"]
    assert not node.alive


def test_a_kill_within_a_turn_neither_runs_the_dead_nor_lengthens_the_turn(loop: SimulatedLoop) -> None:
    order: list[str] = []
    node = loop.start_process("n1")

    def kills() -> None:
        loop.call_soon(order.append, "of the next turn")
        loop.kill(node)

    loop.call_soon(kills)
    node.call(loop.call_soon, order.append, "of the dead")
    loop.call_soon(order.append, "of this turn")
    loop.run_for(0)
    assert order == ["of this turn", "of the next turn"]


def test_closing_the_loop_lays_the_dead_to_rest_without_a_warning() -> None:
    """`finally` blocks that await, and a task that never began; pytest turns warnings into errors."""
    loop = new_loop()
    node = loop.start_process("n1")

    async def stubborn() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(1)
            loop.call_soon(print, "a dead node speaks")

    async def group() -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(stubborn())
            tasks.create_task(stubborn())

    node.create_task(group())
    loop.run_for(1)
    node.create_task(stubborn())
    loop.kill(node)
    loop.run_for(10)
    loop.close()
    del node
    gc.collect()


def test_a_node_may_end_itself_and_nothing_after_that_counts(loop: SimulatedLoop) -> None:
    events: list[str] = []
    node = loop.start_process("n1")

    async def ends() -> None:
        try:
            await asyncio.sleep(1)
            node.die("disk failed")
        except Exception:
            events.append("caught its own death")
        events.append("after death")

    node.create_task(ends())
    node.call(loop.call_later, 2.0, events.append, "timer")
    loop.run_for(10)
    assert not node.alive and events == []


def test_a_restarted_node_is_another_process(loop: SimulatedLoop) -> None:
    events: list[str] = []
    first = _busy_node(loop, events)
    loop.kill(first)
    second = _busy_node(loop, events)
    assert (first.incarnation, second.incarnation) == (1, 2)
    assert loop.process("n1") is second
    loop.run_for(1.5)
    assert events == ["tick"]


def test_a_paused_node_wakes_late_with_everything_in_order(loop: SimulatedLoop) -> None:
    events: list[tuple[str, float]] = []
    node = loop.start_process("n1")
    for name, at_s in (("b", 2.0), ("a", 1.0), ("c", 7.0)):
        node.call(loop.call_at, at_s, lambda name=name: events.append((name, loop.time())))
    loop.pause(node)
    loop.run_for(5.0)
    assert events == []
    loop.resume(node)
    loop.run_for(5.0)
    assert events == [("a", 5.0), ("b", 5.0), ("c", 7.0)]


def test_a_paused_node_sees_its_sockets_before_its_timers_when_it_wakes(loop: SimulatedLoop) -> None:
    """It sleeps in its poll: what the kernel has for it comes first, however long a timer has been due."""
    events: list[str] = []
    node = loop.start_process("n1")
    node.call(loop.call_later, 1.0, events.append, "timer")
    loop.pause(node)
    loop.run_for(2.0)
    loop.call_soon(events.append, "socket", context=node.new_context())
    loop.run_for(2.0)
    loop.resume(node)
    loop.run_for(1.0)
    assert events == ["socket", "timer"]


def test_killing_a_paused_node_drops_what_waited(loop: SimulatedLoop) -> None:
    events: list[str] = []
    node = _busy_node(loop, events)
    loop.pause(node)
    loop.run_for(5.0)
    loop.kill(node)
    loop.run_for(5.0)
    assert events == []


# -- clocks


def test_wall_clocks_are_skewed_drift_and_jump_apart_from_the_loops_time(loop: SimulatedLoop) -> None:
    plain = SimulatedClock(loop)
    skewed = SimulatedClock(loop, skew_ms=-500)
    drifting = SimulatedClock(loop, drift_ppm=100)
    loop.run_for(1000.0)
    assert plain.now_ms() == EPOCH_MS + 1_000_000
    assert skewed.now_ms() == plain.now_ms() - 500
    assert drifting.now_ms() == plain.now_ms() + 100
    skewed.jump(-3_600_000)
    assert skewed.now_ms() == plain.now_ms() - 3_600_500
    assert loop.time() == 1000.0


def test_a_busy_wait_that_reads_the_clock_makes_time_pass(loop: SimulatedLoop) -> None:
    """So that what it waits for arrives."""
    clock = SimulatedClock(loop)
    looks: list[float] = []
    arrived: list[str] = []
    loop.call_at(0.001, arrived.append, "a request")

    def look() -> None:
        looks.append(clock.steady_s())
        if not arrived:
            loop.call_soon(look)

    loop.call_soon(look)
    loop.run_for(1.0)
    assert arrived and 10 < len(looks) < 100 and looks == sorted(set(looks))
    assert loop.time() == 1.0


def test_a_busy_wait_without_end_does_not_hold_up_the_run(loop: SimulatedLoop) -> None:
    clock = SimulatedClock(loop)
    looks: list[float] = []

    def look() -> None:
        looks.append(clock.steady_s())
        loop.call_soon(look)

    loop.call_soon(look)
    loop.run_for(0.02)
    assert 0.02 <= loop.time() <= 0.04
    before = len(looks)
    with pytest.raises(SimulationTimeoutError, match=r"0\.02 s have passed"):
        loop.run_until(lambda: False, limit_s=0.02)
    assert len(looks) > before


def test_a_drift_changes_the_speed_and_not_the_hour_until_the_clock_is_set_right(loop: SimulatedLoop) -> None:
    plain, clock = SimulatedClock(loop), SimulatedClock(loop, skew_ms=20)
    clock.drift(1_000_000)
    loop.run_for(10.0)
    assert clock.now_ms() == plain.now_ms() + 20 + 10_000
    clock.drift(-500_000)
    assert clock.now_ms() == plain.now_ms() + 20 + 10_000
    loop.run_for(10.0)
    assert clock.now_ms() == plain.now_ms() + 20 + 5_000
    clock.jump(1)
    clock.correct()
    assert clock.now_ms() == plain.now_ms() + 20
