"""Connections that peers dial."""

from __future__ import annotations

import asyncio
from uuid import UUID

from broker.network.peers import HANDSHAKE_TIMEOUT_S
from protocol.peer import HelloReply
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


def test_a_refusal_by_a_newer_node_may_have_an_error_code_that_is_not_known() -> None:
    """It raised ValueError in the socket's callback. The link has to be closed and dialled again."""
    with running() as world:
        link = world.nodes[1].cluster.links[2]
        stream, identity = link._stream, link.identity
        assert stream is not None and identity is not None
        directory_id = UUID(bytes=identity.directory)
        refusal = HelloReply(
            error_code=9_999, cluster_id=None, node_id=2, directory_id=directory_id, boot_id=UUID(int=1)
        )
        world.processes[1].call(link.introduced, stream, refusal)
        world.wait(lambda: link._stream is not None and link._stream is not stream)
