"""Early write-back: the disk begins to write what a flush will wait for (sync_file_range(2), Linux only).

A flush has three steps, one after the other: it writes the data, then the file's metadata, then has the drive empty its
cache. If the first step begins as soon as the data is appended, it is over when the flush is asked for.
"""

from __future__ import annotations

import errno
import sys
from ctypes import c_int, c_int64, c_uint

from storage import libc

_WRITE = 2  # SYNC_FILE_RANGE_WRITE: begin, and wait for nothing
#: These errors mean that the data is lost, not that the request was wrong. A later flush may not report them again.
_FATAL = (errno.EIO, errno.ENOSPC, errno.EDQUOT)


_sync_file_range = (
    libc.function("sync_file_range", c_int, c_int64, c_int64, c_uint) if sys.platform == "linux" else None
)


def start_writeback(fd: int, position: int, size: int) -> None:
    """Begin to write `size` bytes from `position`. Makes nothing durable. Does nothing if the system has no such call.

    Raises OSError if the data is lost.
    """
    if _sync_file_range is not None and _sync_file_range(fd, position, size, _WRITE) != 0:
        error = libc.last_error()
        if error.errno in _FATAL:
            raise error
