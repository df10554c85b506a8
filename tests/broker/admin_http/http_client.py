"""Somebody who asks the HTTP endpoint of a node of a `World`."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from tests.broker.world import World

PORT = 9094
#: Settings of a world whose nodes have an endpoint.
SETTINGS = {"varve.metrics.port": str(PORT)}


class Answered(NamedTuple):
    status: int
    headers: dict[str, str]
    body: str


class HttpClient(asyncio.BufferedProtocol):
    """One connection. It sends nothing by itself."""

    def __init__(self) -> None:
        self.received = bytearray()
        self.is_closed = False
        self.transport: asyncio.Transport
        self._buffer = bytearray(1 << 16)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self._buffer)

    def buffer_updated(self, nbytes: int) -> None:
        self.received += self._buffer[:nbytes]

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_closed = True

    @property
    def answer(self) -> Answered:
        """Whole, by its own Content-Length."""
        head, _, body = bytes(self.received).partition(b"\r\n\r\n")
        status_line, *lines = head.decode().split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines)
        assert len(body) == int(headers["Content-Length"])
        assert headers["Connection"] == "close"
        return Answered(int(status_line.split(" ")[1]), headers, body.decode())


def dial(world: World, node_id: int = 1) -> HttpClient:
    """Raises ConnectionRefusedError."""
    client = HttpClient()
    connecting = world.loop.create_task(
        world.network.of("client").connect(f"n{node_id}", PORT, lambda: client)
    )
    world.wait(connecting.done)
    connecting.result()
    return client


def send(world: World, request: bytes, node_id: int = 1) -> Answered:
    """The answer to these bytes, when the node has closed the connection."""
    client = dial(world, node_id)
    client.transport.write(request)
    world.wait(lambda: client.is_closed)
    return client.answer


def get(world: World, path: str, node_id: int = 1) -> Answered:
    return send(world, f"GET {path} HTTP/1.1\r\nHost: n{node_id}:{PORT}\r\n\r\n".encode(), node_id)
