"""Frames between nodes: an int32 size, an int16 kind, a message, and once a handshake is over a CRC-32C (uint32).

`message_codec` encodes and decodes what is between size and checksum. `plain_frame` and `FrameCheck` make frames of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from struct import Struct
from typing import Any, TypeVar

from protocol.codec import decoder, parts_encoder
from protocol.errors import ProtocolError
from protocol.records.crc import crc32c
from protocol.schema import Buffer, Message

#: All messages between nodes are declared as version 0, which is never flexible.
PEER_VERSION = 0

M = TypeVar("M", bound=Message)

_KIND = Struct(">h")
_SIZE = Struct(">i")
_CHECKSUM = Struct(">I")
_CHECKSUM_BYTES = _CHECKSUM.size


def message_codec(
    kinds: Mapping[int, type[M]],
) -> tuple[Callable[[M], list[Buffer]], Callable[[memoryview], M]]:
    """(encode, decode) of a family of messages, by the number of each.

    `encode` returns kind and message, in which record buffers stand as they were given. `decode` is the inverse; record
    fields are slices of its argument. It raises ProtocolError for an unknown kind, and for anything but exactly one
    message.
    """
    kind_of = {cls: _KIND.pack(kind) for kind, cls in kinds.items()}
    # Filled when a kind is first used, like the codecs themselves.
    decoders: dict[int, Callable[[memoryview, int], tuple[Any, int]]] = {}
    encoders: dict[type[M], Callable[[Any], list[Buffer]]] = {}

    def encode(message: M) -> list[Buffer]:
        cls = type(message)
        encode_body = encoders.get(cls)
        if encode_body is None:
            encode_body = encoders[cls] = parts_encoder(cls, PEER_VERSION)
        parts = encode_body(message)
        parts[0] = kind_of[cls] + parts[0]
        return parts

    def decode(data: memoryview) -> M:
        if len(data) < _KIND.size:
            raise ProtocolError(f"peer frame of {len(data)} bytes has no kind")
        (kind,) = _KIND.unpack_from(data)
        decode_body = decoders.get(kind)
        if decode_body is None:
            cls = kinds.get(kind)
            if cls is None:
                raise ProtocolError(f"unknown kind {kind} of peer message")
            decode_body = decoders[kind] = decoder(cls, PEER_VERSION)
        message: M
        message, end = decode_body(data, _KIND.size)
        if end != len(data):
            raise ProtocolError(f"{len(data) - end} bytes behind a {type(message).__name__}")
        return message

    return encode, decode


def plain_frame(parts: list[Buffer]) -> list[Buffer]:
    """A frame without a checksum, for the handshake. Changes `parts`."""
    parts[0] = _SIZE.pack(sum(map(len, parts))) + parts[0]
    return parts


class FrameCheck:
    """The checksums of the frames in one direction of one connection, at its sender or at its receiver.

    The checksum of a frame is the CRC-32C of everything up to there: of a value that belongs to this connection, of
    the frames before it, and of its own bytes. So a frame that was changed, lost, doubled, moved or is of another
    connection is noticed, but for one in 2^32. CRC is no protection against somebody who changes frames on purpose.
    """

    __slots__ = ("_checksum",)

    def __init__(self, start: int) -> None:
        """`start`: the value of this connection and direction, a uint32 that both ends know."""
        self._checksum = start

    def seal(self, parts: list[Buffer]) -> list[Buffer]:
        """The frame to be sent next. Changes `parts`."""
        checksum, size_bytes = self._checksum, _CHECKSUM_BYTES
        for part in parts:
            checksum = crc32c(part, checksum)
            size_bytes += len(part)
        self._checksum = checksum
        parts[0] = _SIZE.pack(size_bytes) + parts[0]
        parts.append(_CHECKSUM.pack(checksum))
        return parts

    def open(self, frame: memoryview) -> memoryview:
        """Kind and message of the frame that came next, given without its size. Raises ProtocolError for any other
        frame; the connection is unusable then."""
        end = len(frame) - _CHECKSUM_BYTES
        if end < 0:
            raise ProtocolError(f"peer frame of {len(frame)} bytes has no checksum")
        data = frame[:end]
        self._checksum = checksum = crc32c(data, self._checksum)
        if checksum != _CHECKSUM.unpack_from(frame, end)[0]:
            raise ProtocolError(f"a frame of {len(frame)} bytes is not the one that was sent next")
        return data
