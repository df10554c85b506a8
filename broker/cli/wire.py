"""One request and its answer on a socket."""

from __future__ import annotations

import socket
import struct
from typing import TypeVar

from protocol.codec import decode, encode
from protocol.errors import ProtocolError
from protocol.headers import RequestHeader, encode_request_header, parse_response_header
from protocol.schema import Message

M = TypeVar("M", bound=Message)

_MAX_RESPONSE_BYTES = 64 << 20


def ask_on(connection: socket.socket, request: Message, version: int, response: type[M]) -> M:
    """One request and its answer. Raises OSError, ProtocolError."""
    key = request.__schema__.api_key
    assert key is not None
    body = encode_request_header(RequestHeader(key, version, 1, "varve-cli")) + encode(request, version)
    connection.sendall(struct.pack(">i", len(body)) + body)
    (size,) = struct.unpack(">i", _receive(connection, 4))
    if not 0 <= size <= _MAX_RESPONSE_BYTES:
        raise ProtocolError(f"an answer of {size} bytes")
    frame = memoryview(_receive(connection, size))
    _, position = parse_response_header(key, version, frame)
    return decode(response, version, frame, position)[0]


def _receive(connection: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        part = connection.recv(size - len(received))
        if not part:
            raise ProtocolError("the connection was closed in the middle of an answer")
        received += part
    return bytes(received)
