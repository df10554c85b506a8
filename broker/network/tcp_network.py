"""TCP, the production `Network`. Peers on one machine meet over Unix sockets (`local_transport`)."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket

import structlog

from broker.environment import Listener, ProtocolFactory
from broker.network import local_transport

logger = structlog.get_logger()

BACKLOG = 1024
#: How long a node waits for its port while an outgoing connection of some process has it. Linux gives ports from 32768
#: on to outgoing connections, and a listener's port may be among them. A closed connection keeps its port for 60 s
#: (TIME_WAIT).
PORT_WAIT_S = 65.0
PORT_PAUSE_S = 0.25
#: Errors of a machine without IPv6, or without an IPv6 address.
_NO_SUCH_FAMILY = (errno.EAFNOSUPPORT, errno.EPROTONOSUPPORT, errno.EADDRNOTAVAIL)


def _addresses(host: str) -> list[str]:
    return ["127.0.0.1", "::1"] if host == "localhost" else [host or "0.0.0.0"]


def _bind(host: str, port: int) -> list[socket.socket]:
    """Listening sockets for every address of `host`; "localhost" stands for both loopback families. Raises OSError.

    An IPv6 address that the machine cannot have (no IPv6 in a container) is left out if another address of the
    name can be bound.
    """
    sockets: list[socket.socket] = []
    passed_over: OSError | None = None
    for name in _addresses(host):
        for family, kind, protocol, _, address in socket.getaddrinfo(
            name, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        ):
            try:
                sockets.append(_listening(family, kind, protocol, (*address[:1], port, *address[2:])))
            except OSError as error:
                if family == socket.AF_INET6 and error.errno in _NO_SUCH_FAMILY:
                    passed_over = error
                    continue
                for opened in sockets:
                    opened.close()
                raise
            if port == 0:
                port = sockets[0].getsockname()[1]
    if not sockets:
        raise passed_over or OSError(f"no address for {host}")
    return sockets


def _listening(family: int, kind: int, protocol: int, address: tuple[str | int, ...]) -> socket.socket:
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(address)
        sock.listen(BACKLOG)
        sock.setblocking(False)
    except OSError:
        sock.close()
        raise
    return sock


async def _bind_when_free(host: str, port: int) -> list[socket.socket]:
    """`_bind`. While the port is in use and no process listens there, it is tried again for PORT_WAIT_S."""
    loop = asyncio.get_running_loop()
    give_up_at = loop.time() + PORT_WAIT_S
    is_logged = False
    while True:
        try:
            return _bind(host, port)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or loop.time() > give_up_at or await _is_served(host, port):
                raise
        if not is_logged:
            is_logged = True
            logger.warning(
                "port is in use by an outgoing connection, waiting until it is free", host=host, port=port
            )
        await asyncio.sleep(PORT_PAUSE_S)


async def _is_served(host: str, port: int) -> bool:
    loop = asyncio.get_running_loop()
    for name in _addresses(host):
        try:
            transport, _ = await loop.create_connection(asyncio.Protocol, name, port)
        except OSError:
            continue
        is_served = not _is_to_itself(transport)
        transport.abort()
        if is_served:
            return True
    return False


def _is_to_itself(transport: asyncio.BaseTransport) -> bool:
    """A connection may be connected to itself if no process listens at its target, and the kernel chose the target's
    port as the local port. While it is open, no process can listen there."""
    return bool(transport.get_extra_info("sockname") == transport.get_extra_info("peername"))


class _Servers:
    """Several one-socket servers as one listener."""

    def __init__(self, servers: list[asyncio.Server], port: int) -> None:
        self._servers = servers
        self._port = port

    @property
    def port(self) -> int:
        return self._port

    def close(self) -> None:
        for server in self._servers:
            server.close()


class TcpNetwork:
    """`broker.environment.Network` over the running event loop."""

    async def listen(
        self, host: str, port: int, factory: ProtocolFactory, *, for_peers: bool = False
    ) -> Listener:
        loop = asyncio.get_running_loop()
        sockets = await _bind_when_free(host, port)
        port = sockets[0].getsockname()[1]
        try:
            local = local_transport.bind(host, port, BACKLOG) if for_peers else None
        except OSError:
            for sock in sockets:
                sock.close()
            raise
        servers = [await loop.create_server(factory, sock=sock) for sock in sockets]
        if local is not None:
            servers.append(await loop.create_unix_server(factory, sock=local))
        return _Servers(servers, port)

    async def connect(self, host: str, port: int, factory: ProtocolFactory) -> asyncio.BaseTransport:
        transport = await local_transport.connect(host, port, factory)
        if transport is None:
            transport, _ = await asyncio.get_running_loop().create_connection(factory, host, port)
        sock = transport.get_extra_info("socket")
        if sock is None or transport.is_closing():
            # The connection ended between connection_made and here. No connection_lost is going to be called.
            transport.abort()
            raise ConnectionResetError(errno.ECONNRESET, f"{host}:{port} closed the connection at once")
        if _is_to_itself(transport):
            transport.abort()
            raise ConnectionRefusedError(
                errno.ECONNREFUSED, f"nobody listens on {host}:{port}: connected to itself"
            )
        with contextlib.suppress(OSError):  # closed meanwhile, or a Unix socket, which has no such delay
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return transport
