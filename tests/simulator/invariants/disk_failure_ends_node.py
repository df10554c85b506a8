"""A node ends when its disk raises an error: EIO from anything ends the process, and so does a folder that is gone
(replication.md section 2, "which error means what"). Errors that answer a `Disk.flush` are not looked at here: a node
that goes on after one is seen by what it loses."""

from __future__ import annotations

from storage.disk import DiskError
from tests.simulator.process import NodeProcess

#: A task passes the error on for some turns of the loop. Each takes as long as others are busily at work (`take_time`).
PASSING_ON_S = 0.05


class DiskFailureEndsNode:
    def __init__(self) -> None:
        #: Who was told of what, and when (loop time).
        self._told: dict[NodeProcess, tuple[float, DiskError]] = {}

    def told(self, process: NodeProcess, error: DiskError, now_s: float) -> None:
        self._told.setdefault(process, (now_s, error))

    def scan(self, now_s: float) -> None:
        self._told = {process: told for process, told in self._told.items() if process.alive}
        for process, (at_s, error) in self._told.items():
            assert now_s <= at_s + PASSING_ON_S or process.paused, (
                f"{process.label} lives on after {error!r} at {at_s:.6f} s"
            )
