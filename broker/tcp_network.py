"""TCP, the production `Network`."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable

from broker.environment import Listener

BACKLOG = 1024


def _bind(host: str, port: int) -> list[socket.socket]:
    """Listening sockets for every address of `host`; "localhost" is both loopback families.

    An IPv6 address that the machine cannot bind (no IPv6 in a container) is passed over as long as another
    address of the name could be bound.
    """
    family_hosts = ["127.0.0.1", "::1"] if host == "localhost" else [host or "0.0.0.0"]
    sockets: list[socket.socket] = []
    last_error: OSError | None = None
    for name in family_hosts:
        for family, kind, protocol, _, address in socket.getaddrinfo(
            name, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        ):
            sock = socket.socket(family, kind, protocol)
            try:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                sock.bind(address)
                sock.listen(BACKLOG)
                sock.setblocking(False)
            except OSError as error:
                sock.close()
                last_error = error
                if family == socket.AF_INET6 and (sockets or host == "localhost"):
                    continue
                for opened in sockets:
                    opened.close()
                raise
            sockets.append(sock)
            if port == 0:
                port = sock.getsockname()[1]
    if not sockets:
        raise last_error or OSError(f"no address for {host}")
    return sockets


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

    async def listen(self, host: str, port: int, factory: Callable[[], asyncio.BufferedProtocol]) -> Listener:
        loop = asyncio.get_running_loop()
        sockets = _bind(host, port)
        servers = [await loop.create_server(factory, sock=sock) for sock in sockets]
        return _Servers(servers, sockets[0].getsockname()[1])

    async def connect(
        self, host: str, port: int, factory: Callable[[], asyncio.BufferedProtocol]
    ) -> asyncio.BaseTransport:
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_connection(factory, host, port)
        sock = transport.get_extra_info("socket")
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return transport
