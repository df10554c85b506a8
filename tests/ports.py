"""Ports on which brokers of tests can listen, no two of them given to two tests at once."""

from __future__ import annotations

import fcntl
import itertools
import os
import tempfile
from collections import deque
from pathlib import Path

from pipeline.trials.local_cluster import is_free

#: Each broker takes up to three neighbouring ports of these: for clients, for other brokers, for metrics. They lie
#: below the range from which the system takes ports for outgoing connections (32768 up on Linux): there a client that
#: dials a broker that is down may reach itself.
PORTS = range(13000, 15000, 4)
#: A broker listens a moment after its port was found to be free. Until then a lock on a file of this folder keeps the
#: port from the other processes that run tests: workers of this run, and runs of other checkouts.
LOCKS = Path(tempfile.gettempdir(), f"varve-test-ports-{os.getuid()}")
#: So many ports are kept locked: a test needs some for as long as it runs. The oldest lock is dropped first.
LOCKED_AT_ONCE = 64

#: Each cluster takes the next ones: what a test has left behind must not find the cluster of the next test. Processes
#: with neighbouring ids begin far from one another.
_next_ports = itertools.islice(itertools.cycle(PORTS), os.getpid() * 126 % len(PORTS), None)
_locks: deque[int] = deque()


def free_ports(count: int) -> list[int]:
    """So many, each free together with the two ports behind it."""
    found: list[int] = []
    for port in itertools.islice(_next_ports, len(PORTS)):
        if _lock(port) and all(is_free(port + n) for n in range(3)):
            found.append(port)
        if len(found) == count:
            return found
    raise AssertionError("no free ports")


def _lock(port: int) -> bool:
    """False where another process has the port. The end of this process unlocks it, however it ends."""
    LOCKS.mkdir(exist_ok=True)
    descriptor = os.open(LOCKS / str(port), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return False
    _locks.append(descriptor)
    while len(_locks) > LOCKED_AT_ONCE:
        os.close(_locks.popleft())
    return True
