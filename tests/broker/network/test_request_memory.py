"""Who waits, and whose connection is closed, when the memory for requests is used up."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from broker.config.node_config import NodeConfig
from broker.network.request_memory import (
    MIN_BYTES_PER_S,
    SHORT_READ_BYTES,
    STALLED_AFTER_S,
    TICK_S,
    RequestMemory,
)
from broker.scheduling.ticks import SLOW_TICK_S
from protocol.framing import SHARED_BUFFER_BYTES

LIMIT_BYTES = NodeConfig().queued_max_request_bytes
HALF_BYTES = LIMIT_BYTES // 2
MB = 1_000_000


@dataclass(eq=False)
class Client:
    """A connection that receives one frame after the other. Its memory is what has come."""

    memory: RequestMemory
    peer: str = "?"
    arriving_bytes: int = 0
    received_bytes: int = 0
    frame_began_s: float = 0.0
    announced_bytes: int = 0
    missing_bytes: int = 0
    is_usual: bool = False
    waits_for_client: bool = False
    waits_for_node: bool = False
    is_closed: bool = False
    went_on: int = 0

    def begin(self, announced_bytes: int, size_bytes: int, now: float) -> None:
        self.frame_began_s = now
        self.announced_bytes = self.missing_bytes = announced_bytes
        self.send(size_bytes, now)

    def send(self, size_bytes: int, now: float) -> None:
        assert not self.is_closed and not self.waits_for_node and size_bytes <= self.missing_bytes
        self.received_bytes += size_bytes
        self.missing_bytes -= size_bytes
        self.arriving_bytes += size_bytes
        if not self.memory.arriving_changed(self, now):
            self.waits_for_node = True

    def served(self, now: float) -> None:
        """Its complete frame waits no more."""
        assert not self.missing_bytes
        self.announced_bytes = self.arriving_bytes = 0
        self.memory.arriving_changed(self, now)

    def go_on(self) -> None:
        self.waits_for_node = False
        self.went_on += 1

    def abort(self) -> None:
        self.is_closed = True


def begun(
    memory: RequestMemory, count: int, announced_bytes: int, size_bytes: int, now: float
) -> list[Client]:
    clients = [Client(memory) for _ in range(count)]
    for client in clients:
        client.begin(announced_bytes, size_bytes, now)
    return clients


def closed(clients: list[Client]) -> int:
    return sum(client.is_closed for client in clients)


def run_ticks(
    memory: RequestMemory, first_s: float, end_s: float, between: Callable[[float], None] = lambda now: None
) -> None:
    """Every tick in [first_s, end_s), and what happens after each."""
    for number in range(round(first_s / TICK_S), round(end_s / TICK_S)):
        memory.tick(number * TICK_S)
        between(number * TICK_S + TICK_S / 2)


# -- serving -----------------------------------------------------------------------------------------------


def test_a_request_waits_until_the_others_take_little() -> None:
    memory = RequestMemory(LIMIT_BYTES)
    client = Client(memory)
    assert memory.may_serve(HALF_BYTES - 10_000, 0)
    memory.served_bytes += HALF_BYTES - 10_000
    assert memory.may_serve(10_000, 5_000) and not memory.may_serve(10_001, 5_000)
    memory.wait_to_serve(client)
    memory.release(HALF_BYTES // 2)
    assert client.went_on == 0
    memory.release(HALF_BYTES // 4)
    assert client.went_on == 1


def test_none_overtakes_those_that_wait_but_small_ones() -> None:
    memory = RequestMemory(LIMIT_BYTES)
    memory.served_bytes = HALF_BYTES - 10_000
    memory.wait_to_serve(Client(memory))
    assert not memory.may_serve(5_000, 0)
    assert memory.may_serve(4_096, 0)
    assert memory.may_serve(96, 4_000) and not memory.may_serve(97, 4_000)


def test_a_request_of_any_size_is_served_when_there_is_little_else() -> None:
    memory = RequestMemory(LIMIT_BYTES)
    memory.served_bytes = HALF_BYTES // 4
    assert memory.may_serve(100 * HALF_BYTES, 5_000)


def test_a_connection_that_is_closed_waits_no_more() -> None:
    memory = RequestMemory(LIMIT_BYTES)
    memory.served_bytes = HALF_BYTES
    client = Client(memory)
    memory.wait_to_serve(client)
    memory.remove(client, 0.0)
    memory.release(HALF_BYTES)
    assert client.went_on == 0 and memory.may_serve(10_000, 5_000)


def test_without_a_limit_nobody_waits() -> None:
    memory = RequestMemory(-1)
    memory.served_bytes = 1 << 40
    assert memory.may_serve(1 << 40, 5_000)
    clients = begun(memory, 100, 100 * MB, 90 * MB, 0.0)
    assert memory.arriving_bytes == 9_000 * MB
    assert not any(client.waits_for_node or client.is_closed for client in clients)
    assert memory.limit_frame(100 << 20) == (100 << 20, "socket.request.max.bytes")


def test_the_largest_frame_is_half_of_the_limit() -> None:
    assert RequestMemory(LIMIT_BYTES).limit_frame(100 << 20) == (
        HALF_BYTES,
        "half of queued.max.request.bytes",
    )
    assert RequestMemory(LIMIT_BYTES).limit_frame(1000) == (1000, "socket.request.max.bytes")


# -- arriving ----------------------------------------------------------------------------------------------


class Loop:
    """Time, with the calls of `retry` and `tick`."""

    def __init__(self, memory: RequestMemory) -> None:
        self.memory = memory
        self.now = 0.0
        self._retried_s = self._ticked_s = 0.0

    def run_for(self, seconds: float) -> None:
        self.now += seconds
        if self.now - self._retried_s >= SLOW_TICK_S:
            self._retried_s = self.now
            self.memory.retry(self.now)
        if self.now - self._ticked_s >= TICK_S:
            self._ticked_s = self.now
            self.memory.tick(self.now)


def test_a_quick_frame_comes_through_among_stalled_ones() -> None:
    """Its frames come within 20 ms. A hundred other clients each second begin one and send no more of it."""
    memory = RequestMemory(LIMIT_BYTES)
    loop, good = Loop(memory), Client(memory)
    stalled: list[Client] = []
    longest_s = 0.0
    for number in range(60):
        began_s = loop.now
        good.begin(MB, 200_000, loop.now)
        while good.missing_bytes:
            loop.run_for(0.005)
            if len(stalled) < 200 * loop.now:
                stalled += begun(memory, 1, 30 * MB if number % 2 else MB, 70_000, loop.now)
            if not good.waits_for_node:
                good.send(200_000, loop.now)
        good.served(loop.now)
        longest_s = max(longest_s, loop.now - began_s)
        assert memory.arriving_bytes <= HALF_BYTES
    assert longest_s < 0.2
    assert len(stalled) > 200 and 10 < len(stalled) - closed(stalled) < 60


def test_frames_that_come_quickly_are_all_received_one_after_the_other() -> None:
    """Two hundred producers, as on each turn before, begin 1 MB each at once, and go on as soon as they may. The loop
    takes 4 ms for each, so that it comes to some only after a long time. None is closed."""
    memory = RequestMemory(LIMIT_BYTES)
    loop = Loop(memory)
    clients = begun(memory, 200, MB, 16_000, loop.now)
    for client in clients:
        client.is_usual = True
    assert sum(client.waits_for_node for client in clients) == 200 - 25
    assert len(memory.shared.view) == SHORT_READ_BYTES
    peak_bytes = 0
    while any(client.missing_bytes for client in clients):
        # One iteration of the loop: it reads from all that may be read, and timers come after that.
        readable = [client for client in clients if client.missing_bytes and not client.waits_for_node]
        for client in readable:
            loop.now += 0.004
            client.send(client.missing_bytes, loop.now)
            peak_bytes = max(peak_bytes, memory.arriving_bytes)
            client.served(loop.now)
        loop.run_for(0)
    assert loop.now < 0.9 and closed(clients) == 0
    assert peak_bytes <= HALF_BYTES and memory.arriving_bytes == 0
    assert len(memory.shared.view) == SHARED_BUFFER_BYTES


def test_a_frame_that_waits_gets_the_room_of_one_that_becomes_slow() -> None:
    memory = RequestMemory(LIMIT_BYTES)
    loop = Loop(memory)
    slow = begun(memory, 25, MB, 900_000, loop.now)
    [waiting] = begun(memory, 1, MB, 900_000, loop.now)
    while waiting.waits_for_node:
        assert closed(slow) == 0
        loop.run_for(0.05)
    # At first what is missing of the others seems to come soon.
    assert 0.2 < loop.now < 2 * TICK_S + 0.2
    assert closed(slow) == 1 and not waiting.is_closed


def test_those_that_wait_go_on_in_turns_from_both_ends() -> None:
    memory = RequestMemory(LIMIT_BYTES)
    complete = begun(memory, 25, MB, MB, 0.0)
    waiting = begun(memory, 10, MB, 16_000, 0.0)
    for each in complete[:6]:
        each.served(0.1)
    assert [client.waits_for_node for client in waiting] == [False] * 3 + [True] * 4 + [False] * 3


def test_if_very_many_wait_those_in_the_middle_are_closed() -> None:
    memory = RequestMemory(LIMIT_BYTES)
    complete = begun(memory, 25, MB, MB, 0.0)
    waiting = begun(memory, 1000, MB, 16_000, 0.0)
    assert closed(complete) == 0 and memory.arriving_bytes <= HALF_BYTES
    assert 450 < closed(waiting) < 550
    assert closed(waiting[:200]) == closed(waiting[-200:]) == 0


def test_frames_of_an_unusual_size_go_before_others_when_they_grow() -> None:
    memory = RequestMemory(LIMIT_BYTES)
    usual = begun(memory, 10, 2 * MB, 200_000, 0.0)
    large = begun(memory, 2, 30 * MB, 200_000, 0.0)
    for step in range(1, 15):
        for client in large:
            if not client.is_closed:
                client.send(2 * MB, 0.01 * step)
    assert closed(usual) == 0 and closed(large) == 2
    assert memory.arriving_bytes <= HALF_BYTES


def test_a_client_that_has_sent_much_and_then_stalls_goes_first() -> None:
    memory = RequestMemory(LIMIT_BYTES)
    [stalled] = begun(memory, 1, 23 * MB, 22 * MB, 0.0)
    slow = Client(memory)
    slow.begin(2 * MB, 100_000, 0.0)
    memory.retry(0.5)
    run_ticks(memory, TICK_S, 1.0, lambda now: slow.send(100_000, now))
    memory.retry(1.0)
    newest = begun(memory, 2, 2 * MB, 60_000, 1.0)
    assert [stalled.is_closed, slow.is_closed, closed(newest)] == [True, False, 0]


def test_little_by_little_does_not_help() -> None:
    memory = RequestMemory(LIMIT_BYTES)
    tricklers = begun(memory, 12, 30 * MB, 70_000, 0.0)

    def trickle(now: float) -> None:
        for client in tricklers:
            client.send(1, now)

    memory.retry(1.0)
    memory.retry(2.0)
    run_ticks(memory, TICK_S, 5.0, trickle)
    good = begun(memory, 5, MB, 200_000, 5.0)
    assert closed(good) == 0 and not any(client.waits_for_node for client in good)
    assert closed(tricklers) == 3


def test_the_frame_that_does_not_fit_waits_for_complete_ones() -> None:
    """Those wait for this node, and were there before."""
    memory = RequestMemory(LIMIT_BYTES)
    complete = begun(memory, 25, MB, MB, 0.0)
    memory.retry(1.0)
    [newest] = begun(memory, 1, 2 * MB, 200_000, 5.0)
    memory.retry(10.0)
    assert newest.waits_for_node and not newest.is_closed and closed(complete) == 0
    complete[0].served(10.0)
    assert newest.waits_for_node
    complete[1].served(10.0)
    assert not newest.waits_for_node


def test_of_complete_ones_the_newest_go_when_nothing_else_can() -> None:
    memory = RequestMemory(LIMIT_BYTES)
    complete = begun(memory, 33, 200_000, 200_000, 0.0)
    complete += begun(memory, 140, 200_000, 200_000, 0.1)
    assert closed(complete[:33]) == 0 and 0 < closed(complete) < 50
    assert memory.arriving_bytes <= HALF_BYTES


def test_a_complete_frame_goes_if_its_client_does_not_read_answers() -> None:
    memory = RequestMemory(LIMIT_BYTES)
    [greedy] = begun(memory, 1, 24 * MB, 24 * MB, 0.0)
    greedy.waits_for_client = True
    memory.retry(0.05)
    memory.retry(0.1)
    [good] = begun(memory, 1, 4 * MB, 200_000, 0.1)
    assert greedy.is_closed and not good.is_closed and not good.waits_for_node


def test_small_frames_do_not_wait_for_large_ones() -> None:
    memory = RequestMemory(LIMIT_BYTES)
    large = begun(memory, 40, MB, 16_000, 0.0)
    small = begun(memory, 40, 16_000, 8_000, 0.0)
    assert large[-1].waits_for_node and not any(client.waits_for_node for client in small)


# -- the minimum rate ----------------------------------------------------------------------------------------


def test_a_stalled_frame_is_given_up_and_the_log_says_so_once() -> None:
    memory = RequestMemory(LIMIT_BYTES)
    clients = begun(memory, 5, 100_000, 1_000, 0.0)
    with structlog.testing.capture_logs() as logged:
        run_ticks(memory, TICK_S, STALLED_AFTER_S)
        assert closed(clients) == 0 and not logged
        run_ticks(memory, STALLED_AFTER_S, STALLED_AFTER_S + 4 * TICK_S)
    assert closed(clients) == 5 and memory.arriving_bytes == 0
    [line] = logged
    assert line["count"] == 5 and len(line["peers"]) == 3


def test_a_frame_that_comes_too_slowly_is_given_up() -> None:
    memory = RequestMemory(LIMIT_BYTES)
    longest_s = STALLED_AFTER_S + 320_000 / MIN_BYTES_PER_S
    [slow, steady] = begun(memory, 2, 320_000, 1, 0.0)
    closed_at: list[float] = []

    def send(now: float) -> None:
        if slow.is_closed:
            closed_at.append(now)
        else:
            slow.send(1, now)
        steady.send(min(5_000, steady.missing_bytes), now)

    run_ticks(memory, TICK_S, 25.0, send)
    assert longest_s < closed_at[0] < longest_s + 3 * TICK_S
    assert not steady.is_closed and not steady.missing_bytes


def test_the_clock_stands_still_while_this_node_does_not_read() -> None:
    memory = RequestMemory(LIMIT_BYTES)
    waiting = begun(memory, 2, 100_000, 1_000, 0.0)
    waiting[0].waits_for_node = waiting[1].waits_for_client = True
    run_ticks(memory, TICK_S, 100)
    waiting[0].waits_for_node = waiting[1].waits_for_client = False
    run_ticks(memory, 100, 105)
    assert closed(waiting) == 0
    run_ticks(memory, 105, 115)
    assert closed(waiting) == 2


def test_the_next_frame_has_a_time_of_its_own() -> None:
    memory = RequestMemory(LIMIT_BYTES)
    client = Client(memory)

    def send(now: float) -> None:
        if client.missing_bytes:
            client.send(500, now)
            client.served(now)
        else:
            client.begin(1_000, 500, now)

    run_ticks(memory, TICK_S, 60, send)
    assert not client.is_closed and client.received_bytes > 100_000


def test_random_clients_stay_within_the_limit() -> None:
    for seed in range(20):
        rng = random.Random(seed)
        memory = RequestMemory(LIMIT_BYTES)
        clients: list[Client] = []
        now = 0.0
        for _ in range(1000):
            now += rng.choice((0.0, 0.001, 0.01, 0.1))
            if rng.random() < 0.2:
                memory.retry(now)
            if rng.random() < 0.1:
                memory.tick(now)
            clients = [client for client in clients if not client.is_closed]
            client = Client(memory)
            if rng.random() < 0.4 or not clients:
                size = rng.choice(
                    (rng.randrange(1, 100_000), rng.randrange(1, 2 * MB), rng.randrange(1, HALF_BYTES))
                )
                clients.append(client)
                client.begin(size, rng.randrange(1, min(size, 250_000) + 1), now)
            else:
                client = rng.choice(clients)
                if client.waits_for_node:
                    continue
                client.waits_for_client = rng.random() < 0.1
                if client.missing_bytes:
                    client.send(rng.randrange(1, client.missing_bytes + 1), now)
                elif rng.random() < 0.5:
                    client.served(now)
                else:
                    client.is_closed = True
                    memory.remove(client, now)
            left = sum(client.arriving_bytes for client in clients if not client.is_closed)
            assert left <= memory.arriving_bytes <= HALF_BYTES
        for client in clients:
            memory.remove(client, now)
        assert memory.arriving_bytes == 0 and not memory._deferred
