"""The memory network: streams keep their order and lose whole tails only; the dead say goodbye as TCP does."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.simulator.link import LinkDelay
from tests.simulator.loop import SimulatedLoop, SimulationError, new_loop
from tests.simulator.network import MemoryNetwork
from tests.simulator.process import NodeProcess
from tests.simulator.stream import BufferReusedError, MemoryTransport


@pytest.fixture
def loop() -> Iterator[SimulatedLoop]:
    loop = new_loop(start_s=0.0)
    yield loop
    loop.close()


class Recorder(asyncio.BufferedProtocol):
    """Keeps what arrives and what the transport says."""

    def __init__(self, buffer_bytes: int = 1 << 16) -> None:
        self.transport: MemoryTransport
        self.received = bytearray()
        self.reads: list[int] = []
        self.events: list[str] = []
        self.error: Exception | None = None
        self._buffer = bytearray(buffer_bytes)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, MemoryTransport)
        self.transport = transport
        self.events.append("made")

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self._buffer)

    def buffer_updated(self, nbytes: int) -> None:
        self.received += self._buffer[:nbytes]
        self.reads.append(nbytes)

    def eof_received(self) -> bool:
        self.events.append("eof")
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.events.append("lost")
        self.error = exc

    def pause_writing(self) -> None:
        self.events.append("pause")

    def resume_writing(self) -> None:
        self.events.append("resume")


class Pair:
    """Node a has connected to node b, port 9092."""

    def __init__(
        self, loop: SimulatedLoop, seed: int = 1, make_server: Callable[[], Recorder] = Recorder
    ) -> None:
        self.loop = loop
        self.network = MemoryNetwork(loop, random.Random(seed), delay=LinkDelay(spike_rate=0.0))
        self.a: NodeProcess = loop.start_process("a")
        self.b: NodeProcess = loop.start_process("b")
        self.client = Recorder()
        self.server = make_server()
        loop.run_until(
            self.b.create_task(self.network.of("b").listen("0.0.0.0", 9092, lambda: self.server)), limit_s=1
        )
        loop.run_until(self.connect(self.client), limit_s=1)
        loop.run_for(0.1)

    def connect(self, protocol: Recorder, port: int = 9092) -> asyncio.Task[MemoryTransport]:
        return self.a.create_task(self.network.of("a").connect("b", port, lambda: protocol))

    def client_writes(self, data: bytes | bytearray) -> None:
        self.a.call(self.client.transport.write, data)

    def server_writes(self, data: bytes) -> None:
        self.b.call(self.server.transport.write, data)


# -- the bytes


@given(seed=st.integers(0, 2**32), sizes=st.lists(st.integers(1, 100_000), max_size=8))
def test_bytes_arrive_all_and_in_order_whatever_the_segments(seed: int, sizes: list[int]) -> None:
    loop = new_loop()
    pair = Pair(loop, seed)
    sent = b""
    rng = random.Random(seed)
    for size in sizes:
        data = rng.randbytes(size)
        pair.client_writes(data)
        sent += data
        loop.run_for(rng.random() * 0.001)
    pair.a.call(pair.client.transport.close)
    loop.run_for(10)
    assert bytes(pair.server.received) == sent
    assert pair.server.events == ["made", "eof", "lost"] and pair.server.error is None
    assert pair.client.events[-1] == "lost" and pair.client.error is None
    loop.close()


def test_boundaries_fall_anywhere(loop: SimulatedLoop) -> None:
    pair = Pair(loop)
    for _ in range(200):
        pair.client_writes(bytes(1000))
        loop.run_for(0.01)
    assert len(pair.server.received) == 200_000
    assert len(set(pair.server.reads)) > 20 and 1000 in pair.server.reads


def test_writelines_is_one_write_and_sockets_have_names(loop: SimulatedLoop) -> None:
    pair = Pair(loop)
    pair.a.call(pair.client.transport.writelines, [b"one ", bytearray(b"two "), memoryview(b"three"), b""])
    loop.run_for(1)
    assert bytes(pair.server.received) == b"one two three"
    assert pair.client.transport.get_extra_info("peername") == ("b", 9092)
    assert pair.server.transport.get_extra_info("sockname") == ("b", 9092)
    assert pair.server.transport.get_extra_info("peername") == pair.client.transport.get_extra_info(
        "sockname"
    )


def test_a_buffer_that_is_changed_before_it_left_is_found(loop: SimulatedLoop) -> None:
    pair = Pair(loop)
    buffer = bytearray(b"first")
    pair.client_writes(buffer)
    buffer[0] = ord("w")
    with pytest.raises(SimulationError) as caught:
        loop.run_for(1)
    assert isinstance(caught.value.__cause__, BufferReusedError)


def test_a_buffer_may_be_reused_when_the_write_buffer_is_empty(loop: SimulatedLoop) -> None:
    pair = Pair(loop)
    buffer = bytearray(b"first")
    pair.client_writes(buffer)
    loop.run_until(lambda: pair.client.transport.get_write_buffer_size() == 0, limit_s=1)
    buffer[:] = b"other"
    loop.run_for(1)
    assert bytes(pair.server.received) == b"first"


def test_a_reader_that_pauses_holds_the_writer_back(loop: SimulatedLoop) -> None:
    pair = Pair(loop)
    pair.server.transport.pause_reading()
    pair.a.call(pair.client.transport.set_write_buffer_limits, 1000)
    pair.client_writes(bytes(200_000))
    assert pair.client.events == ["made", "pause"]
    loop.run_for(10)
    assert pair.client.transport.get_write_buffer_size() == 200_000 - 64 * 1024
    assert not pair.server.received
    pair.b.call(pair.server.transport.resume_reading)
    loop.run_for(10)
    assert pair.client.events == ["made", "pause", "resume"]
    assert len(pair.server.received) == 200_000 and pair.client.transport.get_write_buffer_size() == 0


def test_a_paused_process_holds_the_writer_back_and_reads_when_it_goes_on(loop: SimulatedLoop) -> None:
    pair = Pair(loop)
    loop.pause(pair.b)
    pair.client_writes(bytes(200_000))
    late = Recorder()
    loop.run_until(pair.connect(late), limit_s=1)  # the kernel accepts, though the process sleeps
    loop.run_for(10)
    assert not pair.server.received and pair.client.events == ["made", "pause"]
    loop.resume(pair.b)
    loop.run_for(1)
    assert len(pair.server.received) == 200_000


def test_small_read_buffers_take_several_reads(loop: SimulatedLoop) -> None:
    pair = Pair(loop, make_server=lambda: Recorder(buffer_bytes=7))
    pair.client_writes(b"0123456789" * 10)
    loop.run_for(1)
    assert bytes(pair.server.received) == b"0123456789" * 10 and max(pair.server.reads) == 7


# -- opening


def test_nobody_listening_refuses_and_a_used_port_is_in_use(loop: SimulatedLoop) -> None:
    pair = Pair(loop)
    refused = pair.connect(Recorder(), port=1)
    loop.run_until(refused, limit_s=1)
    assert isinstance(refused.exception(), ConnectionRefusedError)
    again = pair.b.create_task(pair.network.of("b").listen("", 9092, Recorder))
    loop.run_until(again, limit_s=1)
    assert isinstance(again.exception(), OSError)


def test_a_closed_listener_refuses_but_keeps_what_it_accepted(loop: SimulatedLoop) -> None:
    pair = Pair(loop)
    task = pair.b.create_task(pair.network.of("b").listen("localhost", 0, Recorder))
    loop.run_until(task, limit_s=1)
    listener = task.result()
    accepted = Recorder()
    loop.run_until(pair.connect(accepted, listener.port), limit_s=1)
    listener.close()
    refused = pair.connect(Recorder(), listener.port)
    loop.run_until(refused, limit_s=1)
    assert isinstance(refused.exception(), ConnectionRefusedError)
    assert accepted.events == ["made"]


def test_a_cut_link_answers_with_silence(loop: SimulatedLoop) -> None:
    for source, target in (("a", "b"), ("b", "a")):
        pair_loop = new_loop(start_s=0.0)
        pair = Pair(pair_loop)
        pair.network.cut(source, target)
        outcome: list[str] = []

        async def dial(pair: Pair = pair, outcome: list[str] = outcome) -> None:
            try:
                async with asyncio.timeout(2.0):
                    await pair.network.of("a").connect("b", 9092, Recorder)
            except TimeoutError:
                outcome.append("gave up")

        pair.a.create_task(dial())
        never = pair.connect(Recorder())
        pair_loop.run_for(100)
        assert outcome == ["gave up"] and not never.done()
        pair_loop.run_for(100)
        assert isinstance(never.exception(), TimeoutError)
        pair_loop.close()


def test_a_connection_that_nobody_waits_for_any_more_is_closed(loop: SimulatedLoop) -> None:
    pair = Pair(loop)
    end_stall = pair.network.stall("b", "a")
    accepted = pair.server
    dial = pair.connect(Recorder())
    loop.run_for(1)
    dial.cancel()
    end_stall()
    loop.run_for(1)
    assert dial.cancelled()
    assert accepted.events == ["made", "made", "eof", "lost"]


# -- faults


def test_a_stalled_link_delivers_everything_later_in_order(loop: SimulatedLoop) -> None:
    pair = Pair(loop)
    end_stall = pair.network.stall("a", "b")
    for n in range(50):
        pair.client_writes(b"%02d" % n)
        loop.run_for(0.01)
    assert not pair.server.received
    end_stall()
    pair.client_writes(b"after")
    loop.run_for(1)
    assert bytes(pair.server.received) == b"".join(b"%02d" % n for n in range(50)) + b"after"


@given(seed=st.integers(0, 2**32), cut_at_ms=st.integers(0, 20))
def test_a_cut_stream_loses_a_whole_tail_and_is_reset_when_the_link_heals(seed: int, cut_at_ms: int) -> None:
    loop = new_loop()
    pair = Pair(loop, seed)
    sent = b""
    for n in range(20):
        if n == cut_at_ms:
            pair.network.cut("a", "b")
        data = bytes([n]) * 100
        pair.client_writes(data)
        sent += data
        loop.run_for(0.001)
        pair.server_writes(b"s")
    loop.run_for(1)
    got = bytes(pair.server.received)
    assert sent.startswith(got)
    assert len(pair.client.received) == 20, "the other direction works on"
    assert pair.client.events == ["made"] and pair.server.events == ["made"], "silence, no end"
    pair.network.heal("a", "b")
    loop.run_for(1)
    assert bytes(pair.server.received) == got, "nothing later ever arrives"
    if len(got) < len(sent):
        assert isinstance(pair.client.error, ConnectionResetError)
        assert isinstance(pair.server.error, ConnectionResetError)
    else:
        assert pair.client.events == ["made"] and pair.server.events == ["made"]
    loop.close()


def test_a_partition_cuts_both_ways_and_heal_all_mends_everything(loop: SimulatedLoop) -> None:
    pair = Pair(loop)
    pair.network.partition(["a"], ["b", "c"])
    pair.client_writes(b"x")
    pair.server_writes(b"x")
    loop.run_for(10)
    assert not pair.server.received and not pair.client.received
    pair.network.heal_all()
    loop.run_for(1)
    assert pair.client.events == ["made", "lost"] and pair.server.events == ["made", "lost"]
    fresh = Recorder()
    loop.run_until(pair.connect(fresh), limit_s=1)
    pair.a.call(fresh.transport.write, b"again")
    loop.run_for(1)
    assert bytes(pair.server.received) == b"again"


def test_a_reset_reaches_both_ends(loop: SimulatedLoop) -> None:
    pair = Pair(loop)
    pair.network.reset("a", "b")
    loop.run_for(1)
    assert isinstance(pair.client.error, ConnectionResetError)
    assert isinstance(pair.server.error, ConnectionResetError)
    assert pair.client.transport.is_closing()
    pair.client_writes(b"into the void")
    loop.run_for(1)
    assert not pair.server.received


def test_of_overlapping_stalls_and_delays_each_ends_alone(loop: SimulatedLoop) -> None:
    pair = Pair(loop)
    first, second = pair.network.stall("a", "b"), pair.network.stall("a", "b")
    pair.client_writes(b"late")
    first()
    first()
    loop.run_for(1)
    assert not pair.server.received
    second()
    loop.run_for(1)
    assert bytes(pair.server.received) == b"late"
    fast = pair.network.slow("a", "b", LinkDelay(min_s=1.0, mean_extra_s=0.0, spike_rate=0.0))
    slow = pair.network.slow("a", "b", LinkDelay(min_s=5.0, mean_extra_s=0.0, spike_rate=0.0))
    fast()
    pair.client_writes(b"r")
    loop.run_for(4.9)
    assert bytes(pair.server.received) == b"late"
    loop.run_for(0.2)
    assert bytes(pair.server.received) == b"later"
    slow()
    pair.client_writes(b"!")
    loop.run_for(0.1)
    assert bytes(pair.server.received) == b"later!"


def test_a_refused_dial_fails_at_once_even_across_a_cut(loop: SimulatedLoop) -> None:
    """As with a firewall that rejects: the caller need not wait for an answer from the other side."""
    pair = Pair(loop)
    pair.network.partition(["a"], ["b"])
    end_one = pair.network.refuse("a", "b")
    end_other = pair.network.refuse("a", "b")
    began_s = loop.time()
    refused = pair.connect(Recorder())
    loop.run_until(refused, limit_s=1)
    assert isinstance(refused.exception(), ConnectionRefusedError) and loop.time() == began_s
    end_one()
    end_one()
    refused = pair.connect(Recorder())
    loop.run_until(refused, limit_s=1)
    assert isinstance(refused.exception(), ConnectionRefusedError)
    end_other()
    silent = pair.connect(Recorder())
    loop.run_for(1)
    assert not silent.done(), "the cut is still there"


def test_refusals_leave_open_connections_and_the_other_direction_alone(loop: SimulatedLoop) -> None:
    pair = Pair(loop)
    listening = pair.a.create_task(pair.network.of("a").listen("", 9092, Recorder))
    loop.run_until(listening, limit_s=1)
    pair.network.refuse_all([("a", "b"), ("a", "c")])
    pair.client_writes(b"still open")
    back = pair.b.create_task(pair.network.of("b").connect("a", 9092, Recorder))
    loop.run_until(back, limit_s=1)
    assert back.exception() is None and bytes(pair.server.received) == b"still open"
    pair.network.heal_all()
    loop.run_until(fresh := pair.connect(Recorder()), limit_s=1)
    assert fresh.exception() is None and pair.server.events == ["made", "made"], "not reset by the healing"


@pytest.mark.parametrize("death", ["reset", "kill"])
def test_a_stopped_process_may_read_an_old_connections_tail_when_a_new_one_is_made(death: str) -> None:
    """Its kernel took the bytes: after an RST some kernels throw them away, after a FIN none does."""
    outcomes = set()
    for seed in range(20):
        loop = new_loop(start_s=0.0)
        pair = Pair(loop, seed)
        loop.pause(pair.b)
        pair.client_writes(b"old tail")
        loop.run_for(1)
        old, pair.server = pair.server, Recorder()
        if death == "kill":
            loop.kill(pair.a)
            pair.a = loop.start_process("a")
        else:
            pair.network.reset("a", "b")
        fresh = Recorder()
        loop.run_until(pair.connect(fresh), limit_s=1)
        pair.a.call(fresh.transport.write, b"new head")
        loop.run_for(1)
        assert not old.received
        loop.resume(pair.b)
        loop.run_for(1)
        assert bytes(pair.server.received) == b"new head"
        assert old.events[-1] == "lost" and isinstance(old.error, ConnectionResetError) == (death == "reset")
        outcomes.add(bytes(old.received))
        loop.close()
    assert outcomes == ({b"old tail"} if death == "kill" else {b"old tail", b""})


def test_who_writes_to_a_reset_connection_reads_no_more_of_it(loop: SimulatedLoop) -> None:
    for seed in range(20):
        pair_loop = new_loop(start_s=0.0)
        pair = Pair(pair_loop, seed)
        pair.server.transport.pause_reading()
        pair.client_writes(b"unread")
        pair_loop.run_for(1)
        pair.network.reset("a", "b")
        pair_loop.run_for(1)
        pair.server_writes(b"hello?")
        pair_loop.run_for(1)
        assert isinstance(pair.server.error, ConnectionResetError) and not pair.server.received
        pair_loop.close()


def test_who_still_believes_in_a_connection_learns_better_when_the_link_heals(loop: SimulatedLoop) -> None:
    """The other end was reset, or died, while nothing came through from there."""
    pair = Pair(loop)
    pair.network.cut("b", "a")
    pair.network.reset("a", "b")
    loop.run_for(1)
    assert pair.server.events == ["made", "lost"] and pair.client.events == ["made"]
    pair.network.heal("b", "a")
    loop.run_for(1)
    assert isinstance(pair.client.error, ConnectionResetError)


def test_data_for_a_connection_that_is_gone_is_answered_though_its_end_was_lost(loop: SimulatedLoop) -> None:
    pair = Pair(loop)
    end_cut = pair.network.cut("b", "a")
    loop.kill(pair.b)
    loop.run_for(1)
    link = pair.network.link("b", "a")
    del end_cut
    link.end_cuts()  # not `heal`: the FIN is not repeated yet
    assert pair.client.events == ["made"]
    pair.client_writes(b"anybody?")
    loop.run_for(1)
    assert isinstance(pair.client.error, ConnectionResetError)


# -- ends


def test_close_sends_what_was_written_and_abort_does_not(loop: SimulatedLoop) -> None:
    pair = Pair(loop)
    pair.client_writes(bytes(100_000))
    pair.a.call(pair.client.transport.close)
    pair.client_writes(b"too late")
    loop.run_for(1)
    assert len(pair.server.received) == 100_000 and pair.server.events == ["made", "eof", "lost"]
    other = Pair(new_loop())
    other.client_writes(bytes(100_000))
    other.a.call(other.client.transport.abort)
    other.loop.run_for(1)
    assert len(other.server.received) < 100_000
    assert other.client.events == ["made", "pause", "lost"] and other.server.events[-1] == "lost"
    other.loop.close()


def test_writing_to_a_closed_peer_is_answered_by_a_reset(loop: SimulatedLoop) -> None:
    class HalfOpen(Recorder):
        def eof_received(self) -> bool:
            self.events.append("eof")
            return True

    pair = Pair(loop, make_server=HalfOpen)
    pair.a.call(pair.client.transport.close)
    loop.run_for(1)
    assert pair.server.events == ["made", "eof"]
    pair.server_writes(b"hello?")
    loop.run_for(1)
    assert isinstance(pair.server.error, ConnectionResetError)


def test_a_killed_node_tells_its_peers_and_nobody_at_home(loop: SimulatedLoop) -> None:
    pair = Pair(loop)
    pair.client_writes(b"last words")
    loop.run_until(lambda: pair.client.transport.get_write_buffer_size() == 0, limit_s=1)
    loop.kill(pair.a)
    loop.run_for(1)
    assert bytes(pair.server.received) == b"last words", "what the kernel had is sent"
    assert pair.server.events == ["made", "eof", "lost"]
    assert pair.client.events == ["made"]
    loop.kill(pair.b)
    pair.a = loop.start_process("a")
    refused = pair.connect(Recorder())
    loop.run_until(refused, limit_s=1)
    assert isinstance(refused.exception(), ConnectionRefusedError)


def test_a_machine_without_power_is_silent_until_it_is_back(loop: SimulatedLoop) -> None:
    pair = Pair(loop)
    pair.network.power_off("b")
    loop.kill(pair.b)
    pair.client_writes(b"anybody?")
    dial = pair.connect(Recorder())
    loop.run_for(10)
    assert pair.client.events == ["made"] and not dial.done()
    pair.network.power_on("b")
    pair.client_writes(b"now?")
    loop.run_for(1)
    assert isinstance(pair.client.error, ConnectionResetError)


def test_a_restarted_node_listens_on_its_old_port(loop: SimulatedLoop) -> None:
    pair = Pair(loop)
    loop.kill(pair.b)
    pair.b = loop.start_process("b")
    fresh = Recorder()
    loop.run_until(pair.b.create_task(pair.network.of("b").listen("", 9092, lambda: fresh)), limit_s=1)
    loop.run_until(pair.connect(Recorder()), limit_s=1)
    loop.run_for(1)
    assert fresh.events == ["made"]
