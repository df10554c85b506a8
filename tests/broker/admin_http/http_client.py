"""Somebody who asks the HTTP endpoint of a node of a `World`."""

from __future__ import annotations

from typing import NamedTuple

from tests.broker.network.counting_client import CountingClient
from tests.broker.world import World

PORT = 9094
#: Settings of a world whose nodes have an endpoint.
SETTINGS = {"varve.metrics.port": str(PORT)}


class Answered(NamedTuple):
    status: int
    headers: dict[str, str]
    body: str


class HttpClient(CountingClient):
    """One connection, which keeps what comes back."""

    def __init__(self) -> None:
        super().__init__()
        self.received = bytearray()

    def buffer_updated(self, nbytes: int) -> None:
        super().buffer_updated(nbytes)
        self.received += self._buffer[:nbytes]

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
    world.wait(lambda: client.is_lost)
    return client.answer


def get(world: World, path: str, node_id: int = 1) -> Answered:
    return send(world, f"GET {path} HTTP/1.1\r\nHost: n{node_id}:{PORT}\r\n\r\n".encode(), node_id)
