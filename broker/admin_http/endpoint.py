"""The endpoint: its paths, and its connections, each of which asks once.

It is for the person or the program that runs the node, so it may not cost the node anything. There are few connections
at a time, a request is small, and a connection has a deadline from its first byte to the last one of the answer. A
handler answers at once, or later and in the background.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import cast

from broker.admin_http.request import (
    HEAD_END,
    MAX_HEAD_BYTES,
    Answer,
    RefusedError,
    head_of,
    path_of,
)

#: Connections at a time. Further ones are closed. A monitoring system has one, and a person a few.
MAX_CONNECTIONS = 16
#: How long a connection may take in all. Prometheus gives up after 10 s, unless it is told otherwise.
DEADLINE_S = 10.0

Reply = Callable[[Answer], None]
#: Called with what takes the answer, which it calls once, now or later.
Handler = Callable[[Reply], None]


class Endpoint:
    """Of one node. `handlers`: by path."""

    def __init__(self, loop: asyncio.AbstractEventLoop, handlers: Mapping[str, Handler]) -> None:
        self.loop = loop
        self._handlers = handlers
        self.connections: set[HttpConnection] = set()

    def accept(self) -> HttpConnection:
        """The protocol of a new connection."""
        return HttpConnection(self)

    def ask(self, path: str, reply: Reply) -> None:
        """Have the handler of a path answer. Raises RefusedError if there is none."""
        handler = self._handlers.get(path)
        if handler is None:
            raise RefusedError(HTTPStatus.NOT_FOUND, f"there is {', '.join(self._handlers)}")
        handler(reply)

    def close(self) -> None:
        for connection in list(self.connections):
            connection.abort()


class HttpConnection(asyncio.BufferedProtocol):
    """One connection, one request."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._transport: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._buffer = bytearray(MAX_HEAD_BYTES)
        self._received_bytes = 0
        self._is_asked = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        endpoint = self._endpoint
        if len(endpoint.connections) >= MAX_CONNECTIONS:
            self.abort()
            return
        endpoint.connections.add(self)
        self._deadline = endpoint.loop.call_later(DEADLINE_S, self.abort)

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self._buffer)[self._received_bytes :]

    def buffer_updated(self, nbytes: int) -> None:
        self._received_bytes += nbytes
        if self._is_asked:
            return
        end = self._buffer.find(HEAD_END, 0, self._received_bytes)
        if end < 0 and self._received_bytes < MAX_HEAD_BYTES:
            return
        self._is_asked = True
        assert self._transport is not None
        self._transport.pause_reading()  # a second request is not served, nor is a body
        try:
            if end < 0:
                raise RefusedError(
                    HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"more than {MAX_HEAD_BYTES} bytes"
                )
            self._endpoint.ask(path_of(bytes(self._buffer[:end])), self._answer)
        except RefusedError as refused:
            self._answer(refused.answer)

    def _answer(self, answer: Answer) -> None:
        transport = self._transport
        if transport is not None and not transport.is_closing():
            transport.writelines([head_of(answer), *answer.body])
            transport.close()  # when all of it is sent; the deadline ends what is not read

    def eof_received(self) -> bool:
        return self._is_asked  # whoever has asked may close its side, and still reads

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._endpoint.connections.discard(self)
        if self._deadline is not None:
            self._deadline.cancel()
