"""Peers on this machine: a Unix socket beside each loopback port on which they are listened for.

An answer costs a quarter of the time that it takes over TCP's loopback (README, what was tried). The names are Linux's
abstract ones (unix(7)): like loopback ports they belong to the network namespace, end with their process, and can be
dialled by everybody in there. Elsewhere, and for any other address, there are none, and peers meet over TCP.
"""

from __future__ import annotations

import asyncio
import socket
import sys

from broker.environment import ProtocolFactory

LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "::1")
#: The kernel's own is a fifth of a range, whose sender would wait four times for its reader.
SEND_BUFFER_BYTES = 1 << 20


def _name(host: str, port: int) -> str | None:
    """The name that goes with a port: None where there is none. Who has the port has the name."""
    return f"\0varve/{host}:{port}" if sys.platform == "linux" and host in LOOPBACK_HOSTS else None


def bind(host: str, port: int, backlog: int) -> socket.socket | None:
    """The listening socket that goes with a port, which the caller listens on. Raises OSError where somebody else has
    its name."""
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
    """None: nobody listens for peers there in this way."""
    name = _name(host, port)
    if name is None:
        return None
    sock = socket.socket(socket.AF_UNIX)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        sock.connect(name)  # done, or refused, at once
    except OSError:
        sock.close()
        return None
    transport, _ = await asyncio.get_running_loop().create_unix_connection(factory, sock=sock)
    seen = transport.get_extra_info("socket")
    if seen is None or seen.fileno() < 0:
        # It ended in the turn before uvloop took the object (our first write found the peer gone): the descriptor is
        # closed, may be some file's already, and the object would close it once more when it is collected.
        sock.detach()
    return transport
