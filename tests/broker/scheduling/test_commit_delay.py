"""The commit delay: which producers a write waits for, and for how long."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from broker.config.layers import LiveSettings
from broker.config.node_config import NodeConfig
from broker.network.connection import ClientConnection
from broker.network.connection_registry import ConnectionRegistry
from broker.network.request import Request
from broker.scheduling.budget import LoopBudget
from broker.scheduling.commit_delay import CommitDelay
from broker.scheduling.ticks import Ticks
from broker.scheduling.turn import POLLS_BEFORE_WRITING, Turn
from protocol.api_keys import ApiKey
from protocol.headers import RequestHeader, encode_request_header

#: A power of two: sums of its parts are exact.
WAIT_S = 1 / 1024


class _Client:
    def __init__(self) -> None:
        self.answered_s = 0.0
        self.resends_at_once = False


class _Clients:
    """A commit delay whose clock the test sets."""

    def __init__(self, wait_s: float = WAIT_S) -> None:
        self.now_s = 100.0
        self.commit_delay = CommitDelay(lambda: self.now_s, wait_s)

    def round_trip(self, *clients: _Client, after_s: float = WAIT_S / 2) -> None:
        for client in clients:
            self.commit_delay.record_answer(client)
        self.now_s += after_s
        for client in clients:
            self.commit_delay.record_request(client)


def test_a_producer_that_sent_at_once_is_expected_the_next_time() -> None:
    clients, client = _Clients(), _Client()
    clients.commit_delay.record_request(client)
    clients.commit_delay.record_answer(client)
    assert not clients.commit_delay.must_wait(), "nothing is known of it"
    clients.commit_delay.record_request(client)
    clients.commit_delay.record_answer(client)
    assert clients.commit_delay.must_wait()
    clients.commit_delay.record_request(client)
    assert not clients.commit_delay.must_wait()


def test_a_producer_that_was_slow_is_expected_only_after_it_was_quick_again() -> None:
    clients, client = _Clients(), _Client()
    clients.round_trip(client)
    clients.round_trip(client, after_s=WAIT_S)
    clients.commit_delay.record_answer(client)
    assert not clients.commit_delay.must_wait()
    clients.now_s += WAIT_S / 2
    clients.commit_delay.record_request(client)
    clients.commit_delay.record_answer(client)
    assert clients.commit_delay.must_wait()


def test_a_write_waits_once_for_a_producer_that_does_not_send_again() -> None:
    clients, client, other = _Clients(), _Client(), _Client()
    clients.round_trip(client, other)
    clients.commit_delay.record_answer(client)
    clients.now_s += WAIT_S / 2
    clients.commit_delay.record_answer(other)
    assert clients.commit_delay.must_wait()
    clients.commit_delay.record_request(other)
    clients.now_s += WAIT_S / 2
    assert not clients.commit_delay.must_wait()
    clients.round_trip(other)
    assert not client.resends_at_once and other.resends_at_once


def test_answers_to_other_producers_do_not_prolong_the_delay() -> None:
    clients, flock = _Clients(), [_Client() for _ in range(10)]
    clients.round_trip(*flock)
    began_s = clients.now_s
    for client in flock:
        clients.commit_delay.record_answer(client)
        if not clients.commit_delay.must_wait():
            break
        clients.now_s += WAIT_S / 4
    assert clients.now_s - began_s == WAIT_S
    assert not clients.commit_delay.must_wait()
    assert all(client.resends_at_once for client in flock), "they have not had the whole delay to send again"


def test_a_producer_that_disconnected_is_not_expected() -> None:
    clients, client = _Clients(), _Client()
    clients.round_trip(client)
    clients.commit_delay.record_answer(client)
    clients.commit_delay.remove(client)
    assert not clients.commit_delay.must_wait()


def test_no_producer_is_expected_with_a_delay_of_zero() -> None:
    clients, client = _Clients(wait_s=0), _Client()
    clients.round_trip(client, after_s=0)
    clients.commit_delay.record_answer(client)
    assert not clients.commit_delay.must_wait()


class _Iterations:
    """A loop whose iterations the test runs, each `iteration_s` after the one before, and a partition that writes."""

    def __init__(self, clients: _Clients, iteration_s: float) -> None:
        self._clients = clients
        self._iteration_s = iteration_s
        self._ready: list[Callable[[], None]] = []
        self.is_written = False
        self.turn = Turn(self, clients.commit_delay, LoopBudget(self, lambda: clients.now_s))  # type: ignore[arg-type]
        self.turn.set_rounds(self)

    def call_soon(self, callback: Callable[[], None]) -> None:
        self._ready.append(callback)

    def start(self) -> None: ...

    def send_pending(self) -> None: ...

    def write_pending(self) -> None:
        self.is_written = True

    def written_after_s(self, between: Callable[[], None]) -> float:
        """Seconds from a request's arrival until it is written. `between` is called in each iteration."""
        began_s = self._clients.now_s
        self.is_written = False
        self.turn.add_writer(self)
        while not self.is_written:
            ready, self._ready = self._ready, []
            for callback in ready:
                callback()
            between()
            self._clients.now_s += self._iteration_s
        return self._clients.now_s - began_s


def test_a_write_waits_no_longer_than_the_delay_in_all() -> None:
    """In each iteration another producer is answered. It is expected to send at once, and does not."""
    clients, flock = _Clients(), [_Client() for _ in range(1000)]
    clients.round_trip(*flock)
    iterations = _Iterations(clients, WAIT_S / 64)
    for _ in range(3):  # the next write may wait as long, too
        taken_s = iterations.written_after_s(lambda: clients.commit_delay.record_answer(flock.pop()))
        assert WAIT_S <= taken_s <= WAIT_S + (POLLS_BEFORE_WRITING + 2) * WAIT_S / 64


class _Broker:
    """Produce requests wait for the turn's write, which answers them; other requests are never answered."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.turn = Turn(loop, CommitDelay(loop.time, 60), LoopBudget(loop, loop.time))
        self.turn.set_rounds(self)
        self.staged: list[Request] = []
        #: How many requests shared each write.
        self.writes: list[int] = []
        self.rounds_started = 0
        self.changed = asyncio.Event()

    def dispatch(self, request: Request, frame: memoryview, body_position: int) -> None:
        if request.api_key != ApiKey.PRODUCE:
            return
        request.has_waited = True
        if not self.staged:
            self.turn.add_writer(self)
        self.staged.append(request)

    def send_pending(self) -> None: ...

    def write_pending(self) -> None:
        self.writes.append(len(self.staged))
        for request in self.staged:
            request.reply_bytes(b"")
        self.staged = []

    def start(self) -> None:
        self.rounds_started += 1
        self.changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not condition():
                self.changed.clear()
                await self.changed.wait()

    async def written(self) -> None:
        await self.until(lambda: not self.staged)


class _Transport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.answers = 0

    def write(self, data: object) -> None:
        self.answers += 1


class _Connected:
    def __init__(self, broker: _Broker) -> None:
        registry = ConnectionRegistry(LiveSettings(NodeConfig()), Ticks(asyncio.get_running_loop()))
        self.connection = ClientConnection("PLAINTEXT", broker, broker.turn, 1 << 20, lambda: 0.0, registry)
        self.transport = _Transport()
        self.connection.connection_made(self.transport)

    def send(self, api_key: ApiKey = ApiKey.PRODUCE) -> None:
        frame = encode_request_header(RequestHeader(api_key, 3, 1, None))
        data = len(frame).to_bytes(4, "big") + frame
        buffer = self.connection.get_buffer(len(data))
        assert isinstance(buffer, memoryview)
        buffer[: len(data)] = data
        self.connection.buffer_updated(len(data))


async def _in_step() -> tuple[_Broker, _Connected, _Connected]:
    """Two producers that are expected to send at once, because they did so once."""
    broker = _Broker()
    first, second = _Connected(broker), _Connected(broker)
    for _ in range(2):
        first.send()
        second.send()
        await broker.written()
    return broker, first, second


async def test_producers_in_step_share_a_write() -> None:
    broker, first, second = await _in_step()
    first.send()
    rounds_started = broker.rounds_started
    # Many polls later the first request still waits for the second producer, and flush rounds go on.
    await broker.until(lambda: broker.rounds_started > rounds_started + 5 * POLLS_BEFORE_WRITING)
    assert broker.staged
    second.send()
    await broker.written()
    assert broker.writes == [2, 2, 2]
    assert first.transport.answers == second.transport.answers == 3


async def test_a_write_does_not_wait_for_a_producer_with_more_requests_in_flight() -> None:
    broker, first, second = await _in_step()
    first.send()
    second.send()
    second.send(ApiKey.FETCH)
    await broker.written()
    first.send()
    await broker.written()
    assert broker.writes == [2, 2, 2, 1]


async def test_an_answer_that_did_not_wait_makes_no_producer_expected() -> None:
    """Otherwise all others would wait for a client whose requests are refused, or that asks for no acknowledgement."""
    broker, first, second = await _in_step()
    first.send()
    second.send()
    for request in broker.staged[1:]:
        request.has_waited = False
    await broker.written()
    first.send()
    await broker.written()
    assert broker.writes == [2, 2, 2, 1]


async def test_a_write_does_not_wait_for_a_closed_connection() -> None:
    broker, first, second = await _in_step()
    first.send()
    second.connection.connection_lost(None)
    await broker.written()
    assert broker.writes == [2, 2, 1]
