"""TCP connections of the memory network: two transports, and a byte stream in each direction.

A stream loses whole tails, never a middle, and never changes the order: once bytes were lost to a cut,
nothing sent later arrives, and when the link is healed both ends are reset (the network does that). The
exception is a corrupting link, which does all of that in silence.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections import deque
from typing import TYPE_CHECKING, Any, cast

from tests.simulator.link import Link
from tests.simulator.loop import SimulatedLoop
from tests.simulator.process import NodeProcess, require_alive

if TYPE_CHECKING:
    from tests.simulator.network import MemoryNetwork

Buffer = bytes | bytearray | memoryview

#: What asyncio's and uvloop's transports start with.
DEFAULT_HIGH_WATER_BYTES = 64 * 1024

#: The read size that uvloop suggests to `get_buffer`.
READ_SIZE_HINT_BYTES = 64 * 1024

#: Small segments per send at most: boundaries everywhere, but a megabyte is not thousands of events.
_MAX_SMALL_SEGMENTS = 3


class BufferReusedError(AssertionError):
    """A buffer was changed between `write` and the moment its bytes left for the kernel."""


class Stream:
    """One direction of a connection, from the sender's socket buffer to the receiver's."""

    def __init__(self, link: Link, rng: random.Random, window_bytes: int) -> None:
        self.link = link
        self.sender: MemoryTransport
        self.receiver: MemoryTransport
        #: Bytes were lost: nothing later may arrive.
        self.is_broken = False
        #: Something else was sent than what was written.
        self.is_corrupted = False
        self._rng = rng
        self._window_bytes = window_bytes
        #: Sent and not yet read by the receiving application. Lost bytes count for ever, as unacknowledged
        #: bytes do, so that a sender into a cut link is stopped by its window.
        self._unread_bytes = 0
        #: What travels, oldest first: data, b"" for FIN, None for RST.
        self._travelling: deque[bytes | None] = deque()
        self._last_arrival_s = 0.0

    @property
    def room_bytes(self) -> int:
        return self._window_bytes - self._unread_bytes

    def send(self, data: bytes) -> None:
        """Cut into segments by the seed, and send them on their way."""
        self._unread_bytes += len(data)
        view = memoryview(data)
        for _ in range(_MAX_SMALL_SEGMENTS):
            size = len(view)
            if size == 1 or self._rng.random() < 0.75:
                break
            small = self._rng.randrange(1, min(size, 64) if self._rng.random() < 0.5 else size)
            self._send_chunk(bytes(view[:small]))
            view = view[small:]
        self._send_chunk(bytes(view))

    def _send_chunk(self, chunk: bytes) -> None:
        chunks = self.link.corrupted(chunk)
        self.is_corrupted |= chunks != [chunk]
        self._unread_bytes += sum(map(len, chunks)) - len(chunk)
        for each in chunks:
            self._carry(each)

    def send_fin(self) -> None:
        self._carry(b"")

    def send_reset(self) -> None:
        self._carry(None)

    def was_read(self, size_bytes: int) -> None:
        self._unread_bytes -= size_bytes
        self.sender.window_opened()

    def _carry(self, segment: bytes | None) -> None:
        if self.link.is_cut:
            self.is_broken = True
        if self.is_broken:
            return
        self._travelling.append(segment)
        self._last_arrival_s = self.link.carry(self._arrived, self._lost, self._last_arrival_s)

    def _arrived(self) -> None:
        segment = self._travelling.popleft()
        if not self.is_broken:
            self.receiver.segment_arrived(segment)

    def _lost(self) -> None:
        self._travelling.popleft()
        self.is_broken = True


class MemoryTransport(asyncio.Transport):
    """One end of a connection. The kernel's side of it runs as the world, the protocol's as the node."""

    def __init__(
        self,
        network: MemoryNetwork,
        loop: SimulatedLoop,
        node: NodeProcess,
        context: contextvars.Context,
        sockname: tuple[str, int],
        peername: tuple[str, int],
    ) -> None:
        super().__init__({"sockname": sockname, "peername": peername})
        self.node = node
        self.outgoing: Stream
        self.incoming: Stream
        self._network = network
        self._loop = loop
        self._context = context
        self._protocol: asyncio.BufferedProtocol | None = None
        #: Written and not yet taken by the kernel: our copy, and the caller's buffer to compare it with.
        self._unsent: deque[tuple[bytes, memoryview | None]] = deque()
        self._unsent_bytes = 0
        self._high_water_bytes = DEFAULT_HIGH_WATER_BYTES
        self._low_water_bytes = DEFAULT_HIGH_WATER_BYTES // 4
        self._writing_paused = False
        self._pump_scheduled = False
        #: The kernel's receive buffer.
        self._received = bytearray()
        self._fin_received = False
        #: Reset, with data before it that is read first.
        self._rst_received = False
        self._reading_paused = False
        self._read_scheduled = False
        self._closing = False
        #: The socket is gone: closed, reset, or its process is dead.
        self.is_lost = False

    # -- the application's side ------------------------------------------------------------------------------

    def start(self, protocol: asyncio.BufferedProtocol) -> None:
        """connection_made, then reading. Raises ConnectionResetError where the peer has gone already."""
        if self.is_lost:
            raise ConnectionResetError("reset before it was used")
        self._protocol = protocol
        protocol.connection_made(self)
        self._schedule_read()

    def write(self, data: Buffer) -> None:
        require_alive(self.node)
        self._queue(data)
        self._after_write()

    def writelines(self, list_of_data: Any) -> None:
        require_alive(self.node)
        for data in list_of_data:
            self._queue(data)
        self._after_write()

    def can_write_eof(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return self._unsent_bytes

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low_water_bytes, self._high_water_bytes

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if high is None:
            high = DEFAULT_HIGH_WATER_BYTES if low is None else 4 * low
        if low is None:
            low = high // 4
        assert high >= low >= 0
        self._high_water_bytes, self._low_water_bytes = high, low
        self._check_high_water()

    def is_reading(self) -> bool:
        return not self._reading_paused and not self._closing

    def pause_reading(self) -> None:
        self._reading_paused = True

    def resume_reading(self) -> None:
        self._reading_paused = False
        self._schedule_read()

    def is_closing(self) -> bool:
        return self._closing

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = cast(asyncio.BufferedProtocol, protocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        assert self._protocol is not None
        return self._protocol

    def close(self) -> None:
        """Stop reading, send what was written, then close the socket."""
        require_alive(self.node)
        if not self._closing:
            self._closing = True
            if not self._unsent:
                self._loop.call_soon(self._close_socket, None, context=self._context)

    def abort(self) -> None:
        """Close the socket now; what the kernel has not taken is lost."""
        require_alive(self.node)
        if not self.is_lost:
            self._closing = True
            self._drop_unsent()
            self._loop.call_soon(self._close_socket, None, context=self._context)

    # -- writing ---------------------------------------------------------------------------------------------

    def _queue(self, data: Buffer) -> None:
        if self._closing or not len(data):
            return
        original = memoryview(data) if self._network.strict else None
        self._unsent.append((bytes(data), original))
        self._unsent_bytes += len(data)

    def _after_write(self) -> None:
        if self._rst_received and not self._closing:
            self._end_by_reset()
        elif self._unsent:
            self._schedule_pump()
            self._check_high_water()

    def _check_high_water(self) -> None:
        if self._unsent_bytes > self._high_water_bytes and not self._writing_paused:
            self._writing_paused = True
            assert self._protocol is not None
            self._protocol.pause_writing()

    def _schedule_pump(self) -> None:
        # As in uvloop, what one turn writes leaves together after it.
        if not self._pump_scheduled and not self.is_lost:
            self._pump_scheduled = True
            self._loop.call_soon(self._pump, context=self._context)

    def window_opened(self) -> None:
        if self._unsent:
            self._schedule_pump()

    def _pump(self) -> None:
        """Hand the kernel what its window takes."""
        self._pump_scheduled = False
        if self.is_lost:
            return
        room = self.outgoing.room_bytes
        taken: list[bytes] = []
        while self._unsent and room > 0:
            copy, original = self._unsent[0]
            if original is not None and original != copy:
                raise BufferReusedError(
                    f"{len(copy)} bytes for {self.get_extra_info('peername')} were changed"
                )
            if len(copy) > room:
                self._unsent[0] = (copy[room:], original[room:] if original is not None else None)
                copy = copy[:room]
            else:
                self._unsent.popleft()
            room -= len(copy)
            taken.append(copy)
        if taken:
            data = b"".join(taken)
            self._unsent_bytes -= len(data)
            self.outgoing.send(data)
        if self._writing_paused and self._unsent_bytes <= self._low_water_bytes:
            self._writing_paused = False
            assert self._protocol is not None
            self._protocol.resume_writing()
        if self._closing and not self._unsent:
            self._close_socket(None)

    def _drop_unsent(self) -> None:
        self._unsent.clear()
        self._unsent_bytes = 0
        self._writing_paused = False  # never to be resumed: connection_lost follows

    # -- reading ---------------------------------------------------------------------------------------------

    def segment_arrived(self, segment: bytes | None) -> None:
        """In the kernel: data, FIN (b"") or RST (None)."""
        if self.is_lost:
            if segment:
                self._network.reset_sender(self)
        elif segment is None:
            self.reset()
        else:
            if segment:
                self._received += segment
            else:
                self._fin_received = True
            self._schedule_read()

    def _schedule_read(self) -> None:
        if (
            not self._read_scheduled
            and not self._reading_paused
            and not self._closing
            and self._protocol is not None
            and (self._received or self._fin_received or self._rst_received)
        ):
            self._read_scheduled = True
            self._loop.call_soon(self._read, context=self._context)

    def _read(self) -> None:
        """One read: one `buffer_updated`, or the end of the stream."""
        self._read_scheduled = False
        if self._reading_paused or self._closing:
            return
        if not self._received and self._rst_received:
            self._end_by_reset()
            return
        assert self._protocol is not None
        try:
            self._read_once(self._protocol)
        except OSError as error:
            # As asyncio and uvloop do: they take it for an error of this connection, and tell nobody.
            self._end_by_error(error)

    def _read_once(self, protocol: asyncio.BufferedProtocol) -> None:
        if not self._received:
            if not protocol.eof_received():
                self.close()
            self._fin_received = False
            return
        buffer = memoryview(protocol.get_buffer(READ_SIZE_HINT_BYTES)).cast("B")
        size = min(len(buffer), len(self._received))
        assert size, "get_buffer() returned an empty buffer"
        with memoryview(self._received) as received:
            buffer[:size] = received[:size]
        buffer.release()
        del self._received[:size]
        self.incoming.was_read(size)
        protocol.buffer_updated(size)
        self._schedule_read()

    # -- the end ---------------------------------------------------------------------------------------------

    def reset(self) -> None:
        """RST: the protocol hears of it, and before it, on some kernels, reads what had come. A process that was
        stopped meanwhile reads the tail of an old connection when a new one is long made."""
        if self.is_lost or self._rst_received:
            return
        # Whoever still writes learns of the reset by that, and reads nothing more.
        is_reader = not self._closing and not self._unsent
        if self._received and is_reader and self._network.reads_before_reset():
            self._rst_received = True
            self._schedule_read()
        else:
            self._received.clear()
            self._end_by_reset()

    def _end_by_reset(self) -> None:
        self._end_by_error(ConnectionResetError("connection reset by peer"))

    def _end_by_error(self, error: OSError) -> None:
        self._closing = True
        self._drop_unsent()
        self._loop.call_soon(self._close_socket, error, context=self._context)

    def vanish(self, *, silently: bool) -> None:
        """The process died: the kernel closes its sockets, and no protocol is told. `silently`: the machine
        died, and nobody says goodbye."""
        if not self.is_lost:
            self.is_lost = True
            self._closing = True
            self._drop_unsent()
            if not silently:
                self._say_goodbye()

    def _close_socket(self, error: Exception | None) -> None:
        if self.is_lost:
            return
        self.is_lost = True
        self._drop_unsent()
        if not isinstance(error, ConnectionResetError):
            self._say_goodbye()
        self._network.forget(self)
        if self._protocol is not None:
            self._protocol.connection_lost(error)

    def _say_goodbye(self) -> None:
        # close(2) with unread data answers RST, which may cost the peer what it has not read of ours.
        if self._received:
            self.outgoing.send_reset()
        else:
            self.outgoing.send_fin()
