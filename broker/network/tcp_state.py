"""What the kernel knows of a TCP connection that is not read."""

from __future__ import annotations

import socket
import sys
from typing import Protocol

#: Values of tcpi_state, the first byte of TCP_INFO (linux/tcp_states.h), of a connection whose other side sends nothing
#: more: CLOSE, CLOSE_WAIT, LAST_ACK.
_CLOSED = (7, 8, 9)


class Socket(Protocol):
    """What an event loop's transport tells of its socket (`get_extra_info("socket")`)."""

    @property
    def family(self) -> int: ...
    def getsockopt(self, level: int, name: int, size_bytes: int, /) -> bytes: ...


def is_closed_by_peer(sock: Socket) -> bool:
    """Whether the other side has closed the connection. Also known while bytes that it sent before are unread. False
    where the system does not tell: then it is noticed when the connection is read again."""
    if sys.platform != "linux" or sock.family not in (socket.AF_INET, socket.AF_INET6):
        return False
    try:
        return sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] in _CLOSED
    except OSError:
        return True
