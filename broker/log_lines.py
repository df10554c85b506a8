"""Where the lines of the node's own log go: to standard output, as long as that can be written."""

from __future__ import annotations

import os
import sys

import structlog


class LineWriter:
    """A logger of structlog. A line that cannot be written is lost, and counted: the volume that the log is on may be
    full, or nobody reads the log any more. Neither may stop a node, least of all in the middle of a change of state.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._lost = 0

    def write_line(self, line: str) -> None:
        if self._lost:
            line = f"({self._lost} lines before this one could not be written)\n{line}"
        try:
            # Without a buffer between: it would keep what could not be written, and fail at the end of the process.
            os.write(self._fd, f"{line}\n".encode(errors="backslashreplace"))
        except OSError:
            self._lost += 1
        else:
            self._lost = 0

    debug = info = warning = error = critical = write_line


def write_log_lines() -> None:
    """From now on, in the whole process."""
    # Python has no `stdout` where descriptor 1 was closed, and the descriptor may be another file by now.
    writer = LineWriter(-1 if sys.stdout is None else sys.stdout.fileno())
    structlog.configure(logger_factory=lambda *_: writer)
