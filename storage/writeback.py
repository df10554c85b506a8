"""Has the disk begin with what a flush is about to wait for (sync_file_range(2), Linux only).

A flush writes the data, then what the file system knows of the file, then has the drive empty its cache, one after the
other. Begun as soon as the data are appended, the first of these is over when the flush is asked for.
"""

from __future__ import annotations

import errno
import sys
from ctypes import c_int, c_int64, c_uint

from storage import libc

_WRITE = 2  # SYNC_FILE_RANGE_WRITE: begin, and wait for nothing
#: What is wrong with the data, not with the request. A flush might not hear of it again.
_FATAL = (errno.EIO, errno.ENOSPC, errno.EDQUOT)


_sync_file_range = (
    libc.function("sync_file_range", c_int, c_int64, c_int64, c_uint) if sys.platform == "linux" else None
)


def start_writeback(fd: int, position: int, size: int) -> None:
    """Begin to write `size` bytes from `position`. Makes nothing durable; does nothing where the system cannot do it.

    Raises OSError for what means that the data are lost.
    """
    if _sync_file_range is not None and _sync_file_range(fd, position, size, _WRITE) != 0:
        error = libc.last_error()
        if error.errno in _FATAL:
            raise error
