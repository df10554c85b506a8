"""Ports that are free on this machine, each for one cluster until its supervisor ends."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from broker.cli.local_cluster import LocalClusterError, is_port_free

#: Each node takes one of these and the next port. They lie below the range from which the system takes ports for
#: outgoing connections (Linux: from 32768, macOS: from 49152): there a client that dials a dead node may reach itself.
PORTS = range(15000, 19000, 2)
#: A lock on a file of this folder keeps a port from the clusters of other processes, also while the node is dead.
LOCKS = Path(tempfile.gettempdir(), f"varve-ports-{os.getuid()}")


class PortReservation:
    """So many ports, each free together with the next one, until this process ends, however it ends.

    `preferred` are taken if they are free: those that the cluster had before. Raises LocalClusterError if there are
    not enough free ports.
    """

    def __init__(self, count: int, preferred: Sequence[int] = ()) -> None:
        self._locks: list[int] = []
        self.ports = self._take(preferred, len(preferred)) if preferred else ()
        if not self.ports:
            # Processes with neighbouring ids begin far from one another.
            first = os.getpid() * 126 % len(PORTS)
            self.ports = self._take([*PORTS[first:], *PORTS[:first]], count)
        if not self.ports:
            raise LocalClusterError(f"no {count} free ports between {PORTS.start} and {PORTS.stop}")

    def _take(self, candidates: Sequence[int], count: int) -> tuple[int, ...]:
        """Empty: there are not so many."""
        found: list[int] = []
        for port in candidates:
            if self._lock(port) and is_port_free(port) and is_port_free(port + 1):
                found.append(port)
            if len(found) == count:
                return tuple(found)
        return ()

    def _lock(self, port: int) -> bool:
        try:
            LOCKS.mkdir(mode=0o700, exist_ok=True)
            descriptor = os.open(LOCKS / str(port), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise LocalClusterError(
                f"{LOCKS}, with which clusters share ports, cannot be used: {error.strerror}"
            ) from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        self._locks.append(descriptor)
        return True
