"""Splits a byte stream into frames: an int32 size, then that many bytes. Kafka clients and our nodes use this framing.

It is made for `asyncio.BufferedProtocol`: `get_buffer` says where the next bytes go, `received` how many have come. The
connections of a node receive into one shared buffer, so an idle connection costs no memory. A frame that has come only
in part is moved into memory of its own, and the rest of it is received there directly.

That memory grows with what has come, never with what is announced: a client can announce 100 MiB for nothing.
"""

from __future__ import annotations

from struct import Struct

from protocol.errors import ProtocolError

SHARED_BUFFER_BYTES = 256 * 1024
FIRST_BYTES = 64 * 1024
"""The least memory of a frame that has come in part, if it announces more."""
USUAL_BYTES = 2 * 1024 * 1024
"""A connection that has sent a large frame mostly sends more like it. So its next one gets room for twice that size
once FIRST_BYTES of it have come, up to this: the frames of a producer are not copied again and again while they grow.
It is more than the largest batch that clients send by default (1 MiB) with its request."""

_STRANGERS = {
    b"\x16\x03": "a TLS handshake (the client's security.protocol is SSL or SASL_SSL)",
    b"GET ": "an HTTP request",
    b"POST": "an HTTP request",
    b"HEAD": "an HTTP request",
    b"SSH-": "an SSH client",
}
"""What comes where no frame does, by its first bytes. They are larger than any frame may be."""

_SIZE = Struct(">i")
_SIZE_BYTES = _SIZE.size


class SharedBuffer:
    """Where the connections of a node receive what is no continuation of a frame. Valid until the next read of any of
    them."""

    __slots__ = ("is_limited", "view", "whole")

    def __init__(self) -> None:
        self.whole = memoryview(bytearray(SHARED_BUFFER_BYTES))
        #: What one read may fill.
        self.view = self.whole
        self.is_limited = False

    def limit_reads(self, size_bytes: int = SHARED_BUFFER_BYTES) -> None:
        """Memory is short: let the next reads fill at most so much, and give a frame that begins no more memory than it
        needs for what has come. Without `size_bytes`: no more so."""
        self.view = self.whole[:size_bytes]
        self.is_limited = size_bytes < SHARED_BUFFER_BYTES


_SHARED = SharedBuffer()


class FrameReader:
    """The receiving side of one connection.

    `received` returns pairs: a frame without its size, and whether the frame has memory of its own. If it has not, it
    lies in the shared buffer and is valid only until the next `get_buffer` of *any* connection. What must live longer
    must be copied.
    """

    __slots__ = (
        "_filled_bytes",
        "_frame_bytes",
        "_limit",
        "_max_frame_bytes",
        "_pending",
        "_shared",
        "_usual_bytes",
    )

    def __init__(
        self, max_frame_bytes: int, limit: str = "the limit", shared: SharedBuffer = _SHARED
    ) -> None:
        """`limit`: what the error calls `max_frame_bytes`."""
        self._max_frame_bytes = max_frame_bytes
        self._limit = limit
        self._shared = shared
        self._pending: bytearray | None = None
        """The frame that has come in part, with its size prefix. None between frames.
        Invariants: `_filled_bytes` < `_frame_bytes`; `_filled_bytes` <= len(_pending) <= `_frame_bytes`."""
        self._filled_bytes = 0
        self._frame_bytes = 0
        """Size of the pending frame with its prefix. Only that of the prefix as long as the prefix is incomplete."""
        self._usual_bytes = FIRST_BYTES
        """Twice the largest frame so far that had memory of its own, between FIRST_BYTES and USUAL_BYTES."""

    @property
    def pending_bytes(self) -> int:
        """How much memory this connection holds for a pending frame. Reading on can make it more."""
        return 0 if self._pending is None else len(self._pending)

    @property
    def announced_bytes(self) -> int:
        """Size of the pending frame. 0 between frames."""
        return 0 if self._pending is None else self._frame_bytes

    @property
    def missing_bytes(self) -> int:
        """How much of the pending frame has not come yet."""
        return 0 if self._pending is None else self._frame_bytes - self._filled_bytes

    @property
    def is_usual(self) -> bool:
        """This connection has sent a frame that was at least half as large as the pending one, or is as large as is
        usual."""
        return self._usual_bytes >= min(self._frame_bytes, USUAL_BYTES)

    def get_buffer(self, sizehint: int = -1) -> memoryview:
        """The buffer for the next bytes of this connection. Never empty. It has the signature of asyncio's method, so
        that a protocol can use it directly."""
        pending = self._pending
        if pending is None:
            return self._shared.view
        if self._filled_bytes == len(pending):
            # Another one: the transport may still hold the last buffer, so it cannot be made longer.
            pending = self._pending = self._with_room(memoryview(pending))
        return memoryview(pending)[self._filled_bytes :]

    def received(self, nbytes: int) -> list[tuple[memoryview, bool]]:
        """`nbytes` were received into the last buffer. Returns the frames that they complete.

        Raises ProtocolError for a size that is negative or above the limit. The connection is unusable then.
        """
        pending = self._pending
        if pending is None:
            return self._split_frames(self._shared.whole[:nbytes])
        self._filled_bytes += nbytes
        if self._filled_bytes < self._frame_bytes:
            return []
        assert self._filled_bytes == self._frame_bytes, "received more than there was room for"
        if self._frame_bytes == _SIZE_BYTES:
            return self._begin_frame(memoryview(pending))
        if self._usual_bytes < USUAL_BYTES:
            self._usual_bytes = min(max(2 * self._frame_bytes, self._usual_bytes), USUAL_BYTES)
        self._pending = None
        return [(memoryview(pending)[_SIZE_BYTES:], True)]

    def _split_frames(self, data: memoryview) -> list[tuple[memoryview, bool]]:
        frames: list[tuple[memoryview, bool]] = []
        pos = 0
        end = len(data)
        while end - pos >= _SIZE_BYTES:
            (size,) = _SIZE.unpack_from(data, pos)
            body = pos + _SIZE_BYTES
            if not 0 <= size <= self._max_frame_bytes:
                raise self._bad_size(size)
            if body + size > end:
                break
            frames.append((data[body : body + size], False))
            pos = body + size
        if pos < end:
            frames += self._begin_frame(data[pos:])
        return frames

    def _begin_frame(self, start: memoryview) -> list[tuple[memoryview, bool]]:
        """Move the beginning of a frame into memory of its own. Returns a frame only if it is empty."""
        self._frame_bytes = _SIZE_BYTES
        if len(start) >= _SIZE_BYTES:
            (size,) = _SIZE.unpack_from(start)
            if not 0 <= size <= self._max_frame_bytes:
                raise self._bad_size(size)
            if size == 0:
                self._pending = None
                return [(memoryview(b""), True)]
            self._frame_bytes += size
        self._filled_bytes = len(start)
        self._pending = bytearray(start) if self._shared.is_limited else self._with_room(start)
        return []

    def _with_room(self, start: memoryview) -> bytearray:
        """Memory that begins with `start` and has room for more of the frame: for as much again as there is, or for a
        frame of the usual size."""
        size = len(start)
        room = self._usual_bytes if FIRST_BYTES <= size < self._usual_bytes else max(2 * size, FIRST_BYTES)
        memory = bytearray(min(room, self._frame_bytes))
        memory[:size] = start
        return memory

    def _bad_size(self, size: int) -> ProtocolError:
        start = size.to_bytes(_SIZE_BYTES, signed=True)
        for beginning, what in _STRANGERS.items():
            if start.startswith(beginning):
                return ProtocolError(f"{what}, and this listener speaks Kafka's protocol in plain text")
        return ProtocolError(f"frame of {size} bytes; {self._limit} is {self._max_frame_bytes}")
