"""Ports on which brokers of tests can listen."""

from __future__ import annotations

import itertools
import os

from pipeline.local_cluster import is_free

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
        if all(is_free(x) for x in (port, port + 1)):
            found.append(port)
        if len(found) == count:
            return found
    raise AssertionError("no free ports")
