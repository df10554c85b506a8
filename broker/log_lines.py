"""Where the lines of the node's own log go: to standard output, as long as that can be written."""

from __future__ import annotations

import logging
import os
import sys
import time

import structlog

from broker.log_file import LogFile
from broker.log_limit import LimitedLines


class LineWriter:
    """A logger of structlog. A line that cannot be written is lost, and counted: the volume that the log is on may be
    full, or nobody reads the log any more. Neither may stop a node, least of all in the middle of a change of state.
    """

    def __init__(self, fd: int, log_file: LogFile | None = None) -> None:
        self._fd = fd
        self._log_file = log_file
        self._lost = 0

    def write_line(self, line: str) -> None:
        if self._lost:
            line = f"({self._lost} lines before this one could not be written)\n{line}"
        try:
            # Without a buffer between: it would keep what could not be written, and fail at the end of the process.
            count = os.write(self._fd, f"{line}\n".encode(errors="backslashreplace"))
        except OSError:
            self._lost += 1
        else:
            self._lost = 0
            if self._log_file is not None:
                self._log_file.note_written(count)

    debug = info = warning = error = critical = write_line


class ForwardedLines(logging.Handler):
    """Lines of Python's own logging, by libraries and by parts of ours that are values. Each message has its cause."""

    def emit(self, record: logging.LogRecord) -> None:
        structlog.get_logger().log(
            record.levelno,
            record.name,
            text=record.getMessage(),
            cause=str(record.msg),
            exc_info=record.exc_info,
        )


def write_log_lines(log_file: LogFile | None = None) -> LimitedLines:
    """From now on, in the whole process: to standard output, which may be a log file. The caller has what was counted
    written, now and then and at the end."""
    # Python has no `stdout` where descriptor 1 was closed, and the descriptor may be another file by now.
    writer = LineWriter(-1 if sys.stdout is None else sys.stdout.fileno(), log_file)
    limited = LimitedLines(time.monotonic)
    structlog.configure(
        logger_factory=lambda *_: writer, processors=[limited, *structlog.get_config()["processors"]]
    )
    logging.basicConfig(handlers=[ForwardedLines()], level=logging.WARNING)
    return limited
