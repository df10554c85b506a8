"""The local transport: peers on one machine meet over a Unix socket, beside each loopback port for peers.

A request and its answer take a quarter of the time that they take over TCP's loopback (docs/performance-notes.md). The
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
#: The kernel's default is a fifth of the largest range of batches. The sender would wait for the reader four times.
SEND_BUFFER_BYTES = 1 << 20


def _name(host: str, port: int) -> str | None:
    """The name of the socket beside this port; None if there is no local transport. A process listens on the port and
    on the name, or on neither."""
    return f"\0varve/{host}:{port}" if sys.platform == "linux" and host in LOOPBACK_HOSTS else None


def bind(host: str, port: int, backlog: int) -> socket.socket | None:
    """The listening socket beside a port that the caller listens on; None if there is no local transport. Raises
    OSError if another process has the name."""
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
    """A connection to the node that listens there; None if no node does over the local transport."""
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
        # The connection ended in the first write, before uvloop kept the socket object. uvloop has closed the
        # descriptor, and an open file may already have the same number. The socket object would close that when it is
        # collected.
        sock.detach()
    return transport
