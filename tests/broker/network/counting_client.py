"""A client that sends bytes as they are, and only counts what comes back."""

from __future__ import annotations

import asyncio

from tests.broker.world import World


class CountingClient(asyncio.BufferedProtocol):
    def __init__(self) -> None:
        self.received_bytes = 0
        self.is_lost = False
        self._buffer = bytearray(1 << 16)
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self._buffer)

    def buffer_updated(self, nbytes: int) -> None:
        self.received_bytes += nbytes

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True


def connected(world: World, node_id: int = 1) -> CountingClient:
    client = CountingClient()
    dialling = world.network.of("client").connect(f"n{node_id}", 9092, lambda: client)
    task = world.loop.create_task(dialling)
    world.wait(task.done)
    return client
