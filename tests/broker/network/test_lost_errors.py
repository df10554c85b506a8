"""An OSError that a protocol raises while it reads reaches the loop's exception handler, which ends a real node.
Without that, asyncio and uvloop close the connection and call no handler."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from broker.config.layers import LiveSettings
from broker.config.node_config import NodeConfig
from broker.main import new_loop
from broker.network.accepted_peers import AcceptedPeer, AcceptedPeers
from broker.network.connection import ClientConnection
from broker.network.connection_registry import ConnectionRegistry
from broker.network.peers import PeerIdentity
from broker.network.request import Request
from broker.scheduling.budget import LoopBudget
from broker.scheduling.commit_delay import CommitDelay
from broker.scheduling.ticks import Ticks
from broker.scheduling.turn import Turn
from broker.security.cluster_secret import NO_SECRET
from broker.security.handshake import Acceptor, Dialler, Refusal
from broker.security.proofs import Authenticator
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.headers import RequestHeader, encode_request_header
from protocol.peer import Hello, PeerMessage, encode_peer
from protocol.peer_frames import plain_frame
from protocol.peer_handshake import HandshakeChallenge, encode_handshake
from storage.disk import DiskFailedError

HELLO = Hello(cluster_id=None, node_id=2, directory_id=UUID(int=2), boot_id=UUID(int=3))
ERRORS = [FileNotFoundError("gone"), OSError(5, "Input/output error"), DiskFailedError("input/output error")]


class _Failing:
    """Raises an error for every request, and for every message of a peer."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def dispatch(self, request: Request, frame: memoryview, body_position: int) -> None:
        raise self._error

    def hello(self) -> Hello:
        return HELLO

    def check_hello(self, hello: Hello) -> tuple[ErrorCode, str]:
        raise self._error

    def peer_connected(self, identity: PeerIdentity) -> None: ...
    def peer_introduced(self, identity: PeerIdentity) -> None: ...
    def first_peer_message(self, node_id: int) -> None: ...
    def peer_disconnected(self, node_id: int) -> None: ...
    def peer_unreachable(self, node_id: int) -> None: ...
    def peer_message(self, sender: PeerIdentity, message: PeerMessage) -> None: ...


def _client(error: Exception) -> ClientConnection:
    loop = asyncio.get_running_loop()
    turn = Turn(loop, CommitDelay(loop.time, 0), LoopBudget(loop, loop.time))
    registry = ConnectionRegistry(LiveSettings(NodeConfig()), Ticks(asyncio.get_running_loop()))
    return ClientConnection("PLAINTEXT", _Failing(error), turn, 1 << 20, loop.time, registry)


def _request() -> bytes:
    frame = encode_request_header(RequestHeader(ApiKey.FETCH, 3, 1, None))
    return len(frame).to_bytes(4, "big") + frame


def _acceptor() -> Acceptor:
    return Acceptor(Authenticator(NO_SECRET, bytes), 1)


def _peer(error: Exception) -> AcceptedPeer:
    return AcceptedPeers(_Failing(error), _acceptor).accept()


def _hello() -> bytes:
    """What a dialler says until Hello. The nonces are the same each time, so it need not wait for the answers."""
    dialler, acceptor = Dialler(Authenticator(NO_SECRET, bytes), HELLO.node_id, 1, "n1:9093"), _acceptor()
    request = dialler.begin()
    challenge = acceptor.requested(request)
    assert isinstance(challenge, HandshakeChallenge)
    proof = dialler.challenged(challenge)
    answer = acceptor.proved(proof)
    assert not isinstance(answer, Refusal)
    hello = answer[1].dialler_frames.seal(encode_peer(HELLO))
    return b"".join((*plain_frame(encode_handshake(request)), *plain_frame(encode_handshake(proof)), *hello))


async def _reported_error(factory: Callable[[], asyncio.BaseProtocol], data: bytes) -> object:
    """The error that the exception handler gets when `data` comes from a socket. The connection has to end, too."""
    loop = asyncio.get_running_loop()
    told: asyncio.Future[object] = loop.create_future()

    def handler(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        told.set_result(context.get("exception"))

    loop.set_exception_handler(handler)
    server = await loop.create_server(factory, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    writer.write(data)
    with contextlib.suppress(ConnectionResetError):
        await reader.read()  # to the end of the connection
    writer.close()
    server.close()
    return told.result() if told.done() else None


@pytest.mark.parametrize("kind", ["uvloop", "asyncio"])
@pytest.mark.parametrize(("make", "data"), [(_client, _request()), (_peer, _hello())], ids=["client", "peer"])
@pytest.mark.parametrize("error", ERRORS, ids=repr)
def test_an_error_of_the_disk_is_no_error_of_the_connection(
    error: Exception, make: Callable[[Exception], asyncio.BaseProtocol], data: bytes, kind: str
) -> None:
    with asyncio.Runner(loop_factory=lambda: new_loop(kind)) as runner:
        assert runner.run(_reported_error(lambda: make(error), data)) is error
