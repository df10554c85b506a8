"""Connections that peers dial."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest
from structlog.testing import capture_logs

from broker.network.peers import HANDSHAKE_TIMEOUT_S, PeerLink
from broker.scheduling.budget import LoopBudget
from broker.scheduling.commit_delay import CommitDelay
from broker.scheduling.turn import Turn
from protocol.errors import ErrorCode
from protocol.framing import FrameReader
from protocol.peer import HelloReply, encode_peer
from tests.broker.world import running


class _Silent(asyncio.BufferedProtocol):
    def __init__(self) -> None:
        self.is_lost = False

    def get_buffer(self, sizehint: int) -> bytearray:
        return bytearray(100)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True


class _Refusing(asyncio.BufferedProtocol):
    """Answers each Hello with an error code and no message."""

    def __init__(self, error_code: int) -> None:
        self._error_code = error_code
        self._frames = FrameReader(1 << 16)
        self.get_buffer = self._frames.get_buffer  # type: ignore[method-assign]
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def buffer_updated(self, nbytes: int) -> None:
        for _ in self._frames.received(nbytes):
            nobody = UUID(int=0)
            reply = HelloReply(
                error_code=self._error_code,
                message=None,
                cluster_id=None,
                node_id=9,
                directory_id=nobody,
                boot_id=nobody,
            )
            self.transport.writelines(encode_peer(reply))


@pytest.mark.parametrize(
    ("error_code", "reason"),
    [(int(ErrorCode.UNSUPPORTED_VERSION), "UNSUPPORTED_VERSION"), (9999, "UNKNOWN_SERVER_ERROR")],
)
def test_a_refusal_is_logged_and_the_link_dials_again(error_code: int, reason: str) -> None:
    """A newer peer may refuse with an error code that this build does not know."""
    with running() as world, capture_logs() as logs:
        dialled: list[_Refusing] = []

        def accept() -> _Refusing:
            dialled.append(_Refusing(error_code))
            return dialled[-1]

        listening = world.loop.create_task(world.network.of("n9").listen("n9", 9093, accept))
        world.wait(listening.done)
        turn = Turn(world.loop, CommitDelay(world.loop.time, 0), LoopBudget(world.loop, world.loop.time))
        link = PeerLink(9, "n9", 9093, world.network.of("client"), turn, world.nodes[1].cluster)
        task = world.loop.create_task(link.run())
        world.wait(lambda: len(dialled) == 2, limit_s=2)
        task.cancel()
        refusals = [entry for entry in logs if entry["event"] == "refused by peer"]
        assert [entry["reason"] for entry in refusals] == [reason], "each reason is logged once"
        assert not link.is_ready


def test_a_peer_that_does_not_introduce_itself_is_disconnected() -> None:
    """Links whose handshake has succeeded stay open."""
    with running() as world:
        silent = _Silent()
        task = world.loop.create_task(world.network.of("client").connect("n1", 9093, lambda: silent))
        world.wait(task.done)
        links = [link for node in world.nodes.values() for link in node.cluster.links.values()]
        streams = [link._stream for link in links]
        world.wait(lambda: silent.is_lost, limit_s=HANDSHAKE_TIMEOUT_S + 0.5)
        world.loop.run_for(3)
        assert [link._stream for link in links] == streams
