"""Ports on which brokers of tests can listen."""

from __future__ import annotations

import itertools
import os
import socket

#: Each broker takes two neighbouring ports of these. They lie below the range from which the system takes ports for
#: outgoing connections (32768 up on Linux): there a client that dials a broker that is down may reach itself.
PORTS = range(13000, 14000, 2)
#: Each cluster takes the next ones: what a test has left behind must not find the cluster of the next test. Processes
#: with neighbouring ids begin far from one another.
_next_ports = itertools.islice(itertools.cycle(PORTS), os.getpid() * 126 % len(PORTS), None)


def free_ports(count: int) -> list[int]:
    """So many, each free together with the port behind it."""
    found: list[int] = []
    for port in itertools.islice(_next_ports, len(PORTS)):
        if all(_is_free(x) for x in (port, port + 1)):
            found.append(port)
        if len(found) == count:
            return found
    raise AssertionError("no free ports")


def _is_free(port: int) -> bool:
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
