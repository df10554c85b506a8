"""A request of a client, and the place of its answer in the order of its connection."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Protocol

from protocol.api_keys import ApiKey
from protocol.headers import RequestHeader, response_header
from protocol.messages import RESPONSES
from storage.disk import Buffer

if TYPE_CHECKING:
    from broker.network.connection import ClientConnection

_SIZE = struct.Struct(">i")
#: Bodies up to this size are not counted: `MAX_UNANSWERED` bounds them.
_SMALL_BODY_BYTES = 4096
#: A decoded request can take many times its size on the wire (protocol/README.md). Records are not decoded, and a
#: request up to this size is small in any case.
_PLAIN_REQUEST_BYTES = 4096
_DECODED_FACTOR = 16
_PRODUCE_KEY = ApiKey.PRODUCE.to_bytes(2, "big")
#: Requests that can wait for minutes for something to happen. While they do, their frame is gone, and what is kept of
#: them is bounded elsewhere: the partitions of fetches and the members of groups.
_LONG_POLLS = (ApiKey.FETCH, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP)


def served_bytes(frame: memoryview) -> int:
    """How much memory a request counts for while it is served."""
    size_bytes = len(frame)
    if size_bytes <= _PLAIN_REQUEST_BYTES or frame[:2] == _PRODUCE_KEY:
        return size_bytes
    return size_bytes * _DECODED_FACTOR


class Request:
    """A request and the place of its answer in the connection's order."""

    __slots__ = (
        "api_key",
        "api_version",
        "began_s",
        "client_id",
        "connection",
        "correlation_id",
        "has_waited",
        "owned",
        "parts",
        "size_bytes",
        "throttle_ms",
    )

    def __init__(
        self, connection: ClientConnection, header: RequestHeader, owned: bool, size_bytes: int
    ) -> None:
        #: When it was begun, by a clock with microseconds.
        self.began_s = connection.steady_s()
        self.connection = connection
        self.size_bytes = size_bytes
        self.api_key = header.api_key
        self.api_version = header.api_version
        self.correlation_id = header.correlation_id
        self.client_id = header.client_id or ""
        #: Whether the frame's memory belongs to this request. If not, it is valid only until the handler returns.
        self.owned = owned
        #: The encoded answer. None: not answered yet. Empty: nothing is sent (Produce with acks=0).
        self.parts: list[Buffer] | None = None
        #: The answer could not be given at once.
        self.has_waited = False
        #: How long the client is told to wait because it is above a quota.
        self.throttle_ms = 0

    @property
    def listener(self) -> str:
        return self.connection.listener

    def long_poll_waits(self) -> int:
        """The request was handled. If it waits for something to happen now, it counts no more: returns the bytes that
        it has counted for."""
        if self.api_key not in _LONG_POLLS or self.parts is not None:
            return 0
        size_bytes, self.size_bytes = self.size_bytes, 0
        return size_bytes

    def reply_parts(self, body: list[Buffer]) -> None:
        """Answer with an encoded body. The caller must not change the buffers afterwards."""
        assert self.parts is None, "a request is answered once"
        header = response_header(self.api_key, self.api_version, self.correlation_id)
        size = len(header)
        for part in body:
            size += len(part)
        self.parts = [_SIZE.pack(size) + header, *body]
        self.connection.ready_bytes += size
        self.connection.answer_ready()

    def reply_bytes(self, body: bytes) -> None:
        """`reply_parts` for the common case of one small body."""
        assert self.parts is None, "a request is answered once"
        header = response_header(self.api_key, self.api_version, self.correlation_id)
        self.parts = [_SIZE.pack(len(header) + len(body)) + header + body]
        if len(body) > _SMALL_BODY_BYTES:
            self.connection.ready_bytes += len(body)
        self.connection.answer_ready()

    def reply_nothing(self) -> None:
        assert self.parts is None, "a request is answered once"
        self.parts = []
        self.connection.answer_ready()

    def throttle(self, throttle_ms: int) -> None:
        """The client is above a quota: its connection is not read for `throttle_ms`, and the answer names that time
        (KIP-219)."""
        if throttle_ms > self.throttle_ms:
            self.throttle_ms = throttle_ms
            self.connection.mute(throttle_ms)

    def throttled_parts(self) -> list[Buffer]:
        """The answer, with the throttle time written into it. The field comes first in every response that has it.
        Produce's response is the exception, and its handler encodes the throttle time itself."""
        assert self.parts is not None
        response = RESPONSES.get(self.api_key)
        if not self.parts or response is None:
            return self.parts
        if response.__schema__.at(self.api_version)[0].name != "throttle_time_ms":
            return self.parts
        position = _SIZE.size + len(response_header(self.api_key, self.api_version, self.correlation_id))
        head = bytearray().join(self.parts[:2])
        _SIZE.pack_into(head, position, self.throttle_ms)
        return [head, *self.parts[2:]]

    @property
    def is_abandoned(self) -> bool:
        """The connection is closed: an answer would reach nobody."""
        return self.connection.is_closed


class Dispatcher(Protocol):
    """What a connection needs of the API table (broker.handlers)."""

    def dispatch(self, request: Request, frame: memoryview, body_position: int) -> None: ...
