"""The process that `broker.compaction.child_cleaner` starts."""

from __future__ import annotations

import os
import signal
import sys
from ctypes import c_int

from storage import libc

#: Linux (sys/prctl.h): the signal that this process gets when its parent dies.
_PR_SET_PDEATHSIG = 1
#: Clients are served first.
_NICE = 10


def main() -> int:
    node_pid = int(sys.argv[1])
    prctl = libc.function("prctl", c_int, c_int)
    if prctl is not None:
        # The next life of the node clears the folder in which this process builds.
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != node_pid:
        return 1  # the node died before that, and the order may be in the pipe all the same
    os.nice(_NICE)
    # The imports take most of a short digest's time, so they come after that.
    from broker.compaction.child_work import work

    work(node_pid, sys.stdin.buffer, sys.stdout.buffer)
    return 0


if __name__ == "__main__":
    sys.exit(main())
