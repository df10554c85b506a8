"""One flush for everything on a volume (syncfs(2)), if the system reports errors and little is unwritten.

New logs are many small files. Flushed one by one, each waits for the disk by itself. One flush for all of them takes
a quarter of the CPU time. But it also writes what other programs have left unwritten, and the caller waits for that.
So it is done only while little is unwritten on the whole machine.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from ctypes import c_int
from pathlib import Path

from storage import libc

#: With so much unwritten data on the machine the flush is still quick: 150 ms on a disk of 200 MB/s.
MAX_DIRTY_BYTES = 32 * 1024 * 1024
#: The first Linux whose syncfs reports that something could not be written. Earlier ones report success.
REPORTS_ERRORS_SINCE = (5, 8)


class Volume:
    """The file system that a folder is on."""

    def __init__(self, folder: str) -> None:
        self._syncfs = _find_syncfs()
        # Open all the time: a descriptor reports only errors that happened while it was open.
        self._fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def flush(self) -> bool:
        """Make everything durable that was written to the volume before. Blocks. False: nothing was done, because it
        might take long or the system has no such call. Raises OSError if something could not be written, whosever it
        is."""
        if self._syncfs is None or not _is_little_unwritten():
            return False
        if self._syncfs(self._fd) != 0:
            raise libc.last_error()
        # Some file systems write after they have emptied the disk's own cache: ext4 without a journal writes inodes.
        # The flush of a folder empties the cache last.
        os.fsync(self._fd)
        return True

    def close(self) -> None:
        os.close(self._fd)


def _find_syncfs() -> Callable[..., int] | None:
    if platform.system() != "Linux" or _kernel_version() < REPORTS_ERRORS_SINCE:
        return None
    return libc.function("syncfs", c_int)


def _kernel_version() -> tuple[int, ...]:
    major, minor = platform.release().split(".")[:2]
    return int(major), int("".join(c for c in minor if c.isdigit()) or 0)


def _is_little_unwritten() -> bool:
    """Whether little data of this machine is unwritten. False if the system does not say."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return False
    dirty_kb = next((int(line.split()[1]) for line in lines if line.startswith("Dirty:")), None)
    return dirty_kb is not None and dirty_kb * 1024 <= MAX_DIRTY_BYTES
