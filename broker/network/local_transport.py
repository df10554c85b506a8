"""The local transport: peers on one machine meet over a Unix socket, beside each loopback port for peers.

A request and its answer take a quarter of the time that they take over TCP's loopback (README, what was tried). The
names of the sockets are Linux's abstract ones (unix(7)). Like loopback ports, they belong to the network namespace, end
with their process, and can be dialled by everybody in the namespace. On other systems, and for all other addresses,
there is no local transport, and peers meet over TCP.
"""

from __future__ import annotations

import asyncio
import socket
import sys

from broker.environment import ProtocolFactory

LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "::1")
#: The kernel's default is a fifth of a range of batches: the sender would wait four times for the reader.
SEND_BUFFER_BYTES = 1 << 20


def _name(host: str, port: int) -> str | None:
    """The name of the socket beside this port; None if there is no local transport. Who has the port has the name."""
    return f"\0varve/{host}:{port}" if sys.platform == "linux" and host in LOOPBACK_HOSTS else None


def bind(host: str, port: int, backlog: int) -> socket.socket | None:
    """The listening socket beside a port that the caller listens on; None if there is no local transport. Raises
    OSError if somebody else has the name."""
    name = _name(host, port)
    if name is None:
        return None
    sock = socket.socket(socket.AF_UNIX)
    try:
        sock.bind(name)
        sock.listen(backlog)
    except OSError:
        sock.close()
        raise
    sock.setblocking(False)
    return sock


async def connect(host: str, port: int, factory: ProtocolFactory) -> asyncio.Transport | None:
    """A connection to the node that listens there; None if nobody does over the local transport."""
    name = _name(host, port)
    if name is None:
        return None
    sock = socket.socket(socket.AF_UNIX)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        sock.connect(name)  # succeeds or fails at once
    except OSError:
        sock.close()
        return None
    transport, _ = await asyncio.get_running_loop().create_unix_connection(factory, sock=sock)
    seen = transport.get_extra_info("socket")
    if seen is None or seen.fileno() < 0:
        # The connection ended before uvloop took the socket object: our first write found the peer gone. The
        # descriptor is closed and may already be a file's. The object would close it again when it is collected.
        sock.detach()
    return transport
