"""Splits a byte stream into frames: an int32 size, then that many bytes. Kafka clients and our nodes use this framing.

It is made for `asyncio.BufferedProtocol`: `get_buffer` says where the next bytes go, `received` how many have come. All
connections of the process receive into one shared buffer, so an idle connection costs no memory. A frame that has come
only in part is moved into memory of its own, and the rest of it is received there directly.
"""

from __future__ import annotations

from struct import Struct
from typing import ClassVar

from protocol.errors import ProtocolError

SHARED_BUFFER_BYTES = 256 * 1024
FIRST_BYTES = 64 * 1024
"""A frame gets no more memory than this before this much of it has come, whatever size it announces."""
GROWTH_BYTES = 2 * 1024 * 1024
"""How much memory a frame gets beyond what has come of it. A client can announce 100 MiB for nothing, so that must
cost us little. It is more than the largest batch that clients send by default (1 MiB) with its request, so such a frame
is copied only once."""

_SIZE = Struct(">i")
_SIZE_BYTES = _SIZE.size


class FrameReader:
    """The receiving side of one connection.

    `received` returns pairs: a frame without its size, and whether the frame has memory of its own. If it has not, it
    lies in the shared buffer and is valid only until the next `get_buffer` of *any* connection. What must live longer
    must be copied.
    """

    _shared: ClassVar[memoryview] = memoryview(bytearray(SHARED_BUFFER_BYTES))

    __slots__ = ("_filled_bytes", "_frame_bytes", "_max_frame_bytes", "_pending")

    def __init__(self, max_frame_bytes: int) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._pending: bytearray | None = None
        """The frame that has come in part, with its size prefix. None between frames.
        Invariants: `_filled_bytes` < `_frame_bytes`; `_filled_bytes` <= len(_pending) <= `_frame_bytes`."""
        self._filled_bytes = 0
        self._frame_bytes = 0
        """Size of the pending frame with its prefix. Only that of the prefix as long as the prefix is incomplete."""

    @property
    def pending_bytes(self) -> int:
        """How much memory this connection holds for a pending frame."""
        return 0 if self._pending is None else len(self._pending)

    def get_buffer(self, sizehint: int = -1) -> memoryview:
        """The buffer for the next bytes of this connection. Never empty. It has the signature of asyncio's method, so
        that a protocol can use it directly."""
        if self._pending is None:
            return FrameReader._shared
        if self._filled_bytes == len(self._pending):
            self._pending = _enlarged(self._pending, self._frame_bytes)
        return memoryview(self._pending)[self._filled_bytes :]

    def received(self, nbytes: int) -> list[tuple[memoryview, bool]]:
        """`nbytes` were received into the last buffer. Returns the frames that they complete.

        Raises ProtocolError for a size that is negative or above the limit. The connection is unusable then.
        """
        if self._pending is None:
            return self._split_frames(FrameReader._shared[:nbytes])
        self._filled_bytes += nbytes
        if self._filled_bytes < self._frame_bytes:
            return []
        assert self._filled_bytes == self._frame_bytes, "received more than there was room for"
        if self._frame_bytes == _SIZE_BYTES:
            return self._begin_frame(memoryview(self._pending))
        frame = memoryview(self._pending)[_SIZE_BYTES:]
        self._pending = None
        return [(frame, True)]

    def _split_frames(self, data: memoryview) -> list[tuple[memoryview, bool]]:
        frames: list[tuple[memoryview, bool]] = []
        pos = 0
        end = len(data)
        while end - pos >= _SIZE_BYTES:
            (size,) = _SIZE.unpack_from(data, pos)
            body = pos + _SIZE_BYTES
            if size < 0 or size > self._max_frame_bytes:
                raise ProtocolError(f"frame of {size} bytes; the limit is {self._max_frame_bytes}")
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
            if size < 0 or size > self._max_frame_bytes:
                raise ProtocolError(f"frame of {size} bytes; the limit is {self._max_frame_bytes}")
            if size == 0:
                self._pending = None
                return [(memoryview(b""), True)]
            self._frame_bytes += size
        self._filled_bytes = len(start)
        room = FIRST_BYTES if len(start) < FIRST_BYTES else max(GROWTH_BYTES, len(start))
        self._pending = bytearray(min(self._frame_bytes, room))
        self._pending[: len(start)] = start
        return []


def _enlarged(pending: bytearray, frame_bytes: int) -> bytearray:
    """A longer copy. It is not resized in place, because the transport may still hold the last buffer."""
    larger = bytearray(min(frame_bytes, max(GROWTH_BYTES, 2 * len(pending))))
    larger[: len(pending)] = pending
    return larger
