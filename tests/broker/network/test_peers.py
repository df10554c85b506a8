"""Connections that peers dial."""

from __future__ import annotations

import asyncio

from broker.network.peers import HANDSHAKE_TIMEOUT_S
from tests.broker.world import running


class _Silent(asyncio.BufferedProtocol):
    def __init__(self) -> None:
        self.is_lost = False

    def get_buffer(self, sizehint: int) -> bytearray:
        return bytearray(100)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True


def test_who_does_not_introduce_itself_is_not_kept() -> None:
    """The links that were introduced stay."""
    with running() as world:
        silent = _Silent()
        task = world.loop.create_task(world.network.of("client").connect("n1", 9093, lambda: silent))
        world.wait(task.done)
        links = [link for node in world.nodes.values() for link in node.cluster.links.values()]
        streams = [link._stream for link in links]
        world.wait(lambda: silent.is_lost, limit_s=HANDSHAKE_TIMEOUT_S + 0.5)
        world.loop.run_for(3)
        assert [link._stream for link in links] == streams
