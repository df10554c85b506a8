"""Cuts a byte stream into frames: int32 size, then that many bytes (Kafka's framing and our peers').

Made for `asyncio.BufferedProtocol`: `get_buffer` says where the next bytes go, `received` how many came.
As long as no frame is cut short, all connections of the process receive into one shared buffer, so that
an idle connection costs no memory. A frame that is cut short moves into memory of its own, and recv
fills its remainder there directly.
"""

from __future__ import annotations

from struct import Struct
from typing import ClassVar

from protocol.errors import ProtocolError

SHARED_BUFFER_BYTES = 256 * 1024
FIRST_BYTES = 64 * 1024
"""A frame of which less than this has come gets no more memory: announcing much and sending nothing is cheap."""
GROWTH_BYTES = 2 * 1024 * 1024
"""A frame gets at most this much memory before bytes of it have come: announcing 100 MiB is free, and
must cost us nothing. It is above the 1 MiB batches that clients send at most by default, with their
framing, so that these are never copied a second time."""

_SIZE = Struct(">i")
_SIZE_BYTES = _SIZE.size


class FrameReader:
    """The receiving side of one connection.

    The first member of what `received` returns is the frame without its size; the second says whether
    its memory is the frame's own. Where it is not, the frame lies in the shared buffer and is valid only
    until the next `get_buffer` of *any* connection: use it up, or copy what must live longer.
    """

    _shared: ClassVar[memoryview] = memoryview(bytearray(SHARED_BUFFER_BYTES))

    __slots__ = ("_filled_bytes", "_frame_bytes", "_max_frame_bytes", "_pending")

    def __init__(self, max_frame_bytes: int) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._pending: bytearray | None = None
        """The frame that is cut short, size prefix included; None between frames.
        Invariant: `_filled_bytes` < `_frame_bytes`, and `_filled_bytes` <= len(_pending) <= `_frame_bytes`."""
        self._filled_bytes = 0
        self._frame_bytes = 0
        """What the pending frame takes, prefix included; only the prefix as long as that is incomplete."""

    @property
    def pending_bytes(self) -> int:
        """Memory that this connection holds for a frame cut short."""
        return 0 if self._pending is None else len(self._pending)

    def get_buffer(self, sizehint: int = -1) -> memoryview:
        """Where the next bytes of this connection must be received. Never empty. Takes what asyncio's protocols are
        given, so that it can be theirs."""
        if self._pending is None:
            return FrameReader._shared
        if self._filled_bytes == len(self._pending):
            self._pending = _enlarged(self._pending, self._frame_bytes)
        return memoryview(self._pending)[self._filled_bytes :]

    def received(self, nbytes: int) -> list[tuple[memoryview, bool]]:
        """Takes note of `nbytes` received into the last buffer. Returns the frames completed by them.

        Raises ProtocolError for a size that is negative or above the limit; the connection is unusable then.
        """
        if self._pending is None:
            return self._cut(FrameReader._shared[:nbytes])
        self._filled_bytes += nbytes
        if self._filled_bytes < self._frame_bytes:
            return []
        assert self._filled_bytes == self._frame_bytes, "received more than there was room for"
        if self._frame_bytes == _SIZE_BYTES:
            return self._begin(memoryview(self._pending))
        frame = memoryview(self._pending)[_SIZE_BYTES:]
        self._pending = None
        return [(frame, True)]

    def _cut(self, data: memoryview) -> list[tuple[memoryview, bool]]:
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
            frames += self._begin(data[pos:])
        return frames

    def _begin(self, start: memoryview) -> list[tuple[memoryview, bool]]:
        """Moves the start of a frame into memory of its own. Completes only a frame of no bytes."""
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
    """A longer copy. Not resized in place: the transport may still hold the buffer it got last."""
    larger = bytearray(min(frame_bytes, max(GROWTH_BYTES, 2 * len(pending))))
    larger[: len(pending)] = pending
    return larger
