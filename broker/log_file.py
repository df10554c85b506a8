"""The log of a node in a file, which does not grow without bound: at `MAX_BYTES` a new one is begun.

FILE is the newest, FILE.1 the one before it, and so on. `KEPT` older ones are kept.
"""

from __future__ import annotations

import os
from pathlib import Path

MAX_BYTES = 10 << 20
KEPT = 4


def keep_older(path: Path) -> None:
    """Make room for a new file at `path`. Raises OSError."""
    if not path.exists():
        return
    for number in range(KEPT - 1, 0, -1):
        older = Path(f"{path}.{number}")
        if older.exists():
            older.replace(f"{path}.{number + 1}")
    path.replace(f"{path}.1")


class LogFile:
    """Standard output and standard error of this process, in a file. So what C libraries and dying threads print comes
    there, too."""

    def __init__(self, path: Path) -> None:
        """Go on with the file at `path`, which is made if it is not there. Raises OSError."""
        self._path = path
        self._left_bytes = 0
        self._open()

    def note_written(self, count: int) -> None:
        """Called after `count` bytes were written. When the file is full, a new one is begun; if that cannot be done,
        the old one goes on until it is full once more. Others who write count at the next start only."""
        self._left_bytes -= count
        if self._left_bytes > 0:
            return
        try:
            keep_older(self._path)
            self._open()
        except OSError:
            self._left_bytes = MAX_BYTES

    def _open(self) -> None:
        fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            self._left_bytes = MAX_BYTES - os.fstat(fd).st_size
            os.dup2(fd, 1)
            os.dup2(fd, 2)
        finally:
            os.close(fd)
