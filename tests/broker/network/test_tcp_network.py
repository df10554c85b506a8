"""TCP as the nodes use it, on the loopback of this machine."""

from __future__ import annotations

import asyncio
import errno
import functools
import gc
import os
import pathlib
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

from broker.cli.local_cluster import LocalClusterError, _check_free
from broker.main import new_loop
from broker.network import local_transport, tcp_network
from broker.network.tcp_network import TcpNetwork
from tests.ports import free_ports


@pytest.fixture
def taken() -> Iterator[tuple[int, socket.socket]]:
    """A port that is the local port of an outgoing connection, and that connection."""
    (port,) = free_ports(1)
    with closing(socket.create_server(("127.0.0.1", 0))) as server, closing(socket.socket()) as outgoing:
        outgoing.bind(("127.0.0.1", port))
        outgoing.connect(server.getsockname())
        accepted, _ = server.accept()
        with closing(accepted):
            yield port, outgoing


def _drop(connection: socket.socket) -> None:
    """Close it without TIME_WAIT."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    connection.close()


async def test_a_node_waits_for_a_port_that_an_outgoing_connection_uses(
    taken: tuple[int, socket.socket],
) -> None:
    port, outgoing = taken
    listening = asyncio.create_task(TcpNetwork().listen("127.0.0.1", port, asyncio.BufferedProtocol))
    await asyncio.sleep(0)
    assert not listening.done()
    _drop(outgoing)
    listener = await asyncio.wait_for(listening, 2)
    assert listener.port == port
    listener.close()


def test_varve_up_leaves_waiting_for_a_port_to_the_node(taken: tuple[int, socket.socket]) -> None:
    port, _ = taken
    _check_free(port)
    with (
        closing(socket.create_server(("127.0.0.1", 0))) as other,
        pytest.raises(LocalClusterError, match="in use"),
    ):
        _check_free(other.getsockname()[1])


async def test_waiting_for_a_port_has_a_limit(
    taken: tuple[int, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tcp_network, "PORT_WAIT_S", 0.2)
    with pytest.raises(OSError, match="in use"):
        await TcpNetwork().listen("127.0.0.1", taken[0], asyncio.BufferedProtocol)


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
async def test_a_port_where_another_process_listens_is_refused_at_once(address: str) -> None:
    """Also if only the IPv6 address of localhost is in use: clients would connect to the other process there."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        other = socket.create_server((address, 0), family=family)
    except OSError as error:
        pytest.skip(f"no {address} here: {error}")
    with closing(other):
        before = asyncio.get_running_loop().time()
        with pytest.raises(OSError) as refused:
            await TcpNetwork().listen("localhost", other.getsockname()[1], asyncio.BufferedProtocol)
        assert refused.value.errno == errno.EADDRINUSE
        assert asyncio.get_running_loop().time() - before < 1


async def test_a_kernel_without_ipv6_serves_localhost(monkeypatch: pytest.MonkeyPatch) -> None:
    class Socket(socket.socket):
        def __init__(
            self, family: int = -1, type: int = -1, proto: int = -1, fileno: int | None = None
        ) -> None:
            if family == socket.AF_INET6:
                raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")
            super().__init__(family, type, proto, fileno)

    monkeypatch.setattr(socket, "socket", Socket)
    listener = await TcpNetwork().listen("localhost", 0, asyncio.BufferedProtocol)
    assert listener.port
    listener.close()


async def test_a_connection_to_itself_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    (port,) = free_ports(1)
    loop = asyncio.get_running_loop()
    # The kernel chooses the local port; one time in 28,000 it is this one.
    from_that_port = functools.partial(loop.create_connection, local_addr=("127.0.0.1", port))
    monkeypatch.setattr(loop, "create_connection", from_that_port)
    with pytest.raises(ConnectionRefusedError):
        await TcpNetwork().connect("127.0.0.1", port, asyncio.Protocol)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["uvloop", "asyncio"])
def test_a_connection_that_is_lost_at_once_raises(kind: str) -> None:
    """A connection can end in the loop iteration between connection_made and the return of `connect`.

    uvloop has no socket then, and a caller that waits for connection_lost would wait for ever.
    """

    async def dial() -> None:
        loop = asyncio.get_running_loop()
        create_connection = loop.create_connection

        async def slowly(factory: Callable[[], Dialled], host: str, port: int) -> Any:
            transport, protocol = await create_connection(factory, host, port)
            async with asyncio.timeout(5):
                await protocol.lost.wait()
            return transport, protocol

        loop.create_connection = slowly  # type: ignore[assignment, method-assign]
        server = await loop.create_server(Refusing, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        try:
            with pytest.raises(ConnectionResetError):
                await TcpNetwork().connect("127.0.0.1", port, Dialled)  # type: ignore[arg-type]
        finally:
            server.close()
            await server.wait_closed()

    class Refusing(asyncio.Protocol):
        def connection_made(self, transport: Any) -> None:
            transport.abort()

    class Dialled(asyncio.Protocol):
        def __init__(self) -> None:
            self.lost = asyncio.Event()

        def connection_lost(self, exc: Exception | None) -> None:
            self.lost.set()

    with asyncio.Runner(loop_factory=lambda: new_loop(kind)) as runner:
        runner.run(dial())


class _Speaking(asyncio.BufferedProtocol):
    """Collects what it receives until there is a full stop."""

    def __init__(self) -> None:
        self.heard = b""
        self.is_over = asyncio.Event()
        self._buffer = bytearray(1 << 16)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.family = transport.get_extra_info("socket").family

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.heard += self._buffer[:nbytes]
        if self.heard.endswith(b"."):
            self.is_over.set()


@pytest.mark.skipif(sys.platform != "linux", reason="abstract names are Linux's")
@pytest.mark.parametrize(
    ("host", "dialled", "for_peers", "family"),
    [
        ("localhost", "localhost", True, socket.AF_UNIX),
        ("127.0.0.1", "127.0.0.1", True, socket.AF_UNIX),
        ("localhost", "127.0.0.1", True, socket.AF_INET),
        ("127.0.0.1", "localhost", True, socket.AF_INET),
        ("", "localhost", True, socket.AF_INET),
        ("localhost", "localhost", False, socket.AF_INET),
    ],
)
async def test_peers_of_one_machine_use_the_local_transport(
    host: str, dialled: str, for_peers: bool, family: int
) -> None:
    """If both use the same loopback address. The send buffer takes a megabyte."""
    network, server, client = TcpNetwork(), _Speaking(), _Speaking()
    listener = await network.listen(host, 0, lambda: server, for_peers=for_peers)
    transport = await network.connect(dialled, listener.port, lambda: client)
    assert isinstance(transport, asyncio.Transport)
    transport.write(b"x" * (1 << 20) + b".")
    await asyncio.wait_for(server.is_over.wait(), 5)
    assert (client.family, len(server.heard)) == (family, (1 << 20) + 1)
    transport.close()
    listener.close()


@pytest.mark.skipif(sys.platform != "linux", reason="abstract names are Linux's")
async def test_a_socket_name_of_another_process_is_a_port_in_use() -> None:
    """Peers would connect to the other process."""
    (port,) = free_ports(1)
    with closing(socket.socket(socket.AF_UNIX)) as other:
        other.bind(f"\0varve/localhost:{port}")
        with pytest.raises(OSError) as refused:
            await TcpNetwork().listen("localhost", port, _Speaking, for_peers=True)
    assert refused.value.errno == errno.EADDRINUSE
    listener = await TcpNetwork().listen("localhost", port, _Speaking, for_peers=True)
    listener.close()


def _sockets() -> int:
    """The number of sockets that this process has open."""
    links = (pathlib.Path(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd"))
    return sum(os.readlink(link).startswith("socket:") for link in links if link.is_symlink())


class _Hasty(asyncio.Protocol):
    """Writes at once, to a peer that has died since it was dialled."""

    def __init__(self, listening: socket.socket) -> None:
        self._listening = listening

    def connection_made(self, transport: Any) -> None:
        self._listening.close()
        transport.set_write_buffer_limits(high=0)
        transport.write(b"hello")


@pytest.mark.skipif(sys.platform != "linux", reason="abstract names are Linux's")
@pytest.mark.parametrize("kind", ["uvloop", "asyncio"])
def test_a_peer_that_dies_while_it_is_dialled_closes_its_own_descriptor_once(kind: str) -> None:
    """Closed a second time, the descriptor could be that of an open file."""

    async def dial() -> None:
        (port,) = free_ports(1)
        listening = local_transport.bind("localhost", port, backlog=1)
        assert listening is not None
        before = _sockets()
        with closing(listening), pytest.raises(ConnectionResetError):
            await TcpNetwork().connect("localhost", port, lambda: _Hasty(listening))  # type: ignore[arg-type, return-value]
        files = [os.open(os.devnull, os.O_RDONLY) for _ in range(8)]
        gc.collect()
        await asyncio.sleep(0)
        for file in files:
            os.close(file)  # raises if it is closed already
        assert _sockets() == before - 1, "only the listening socket is closed, and no other is left open"

    with asyncio.Runner(loop_factory=lambda: new_loop(kind)) as runner:
        runner.run(dial())
