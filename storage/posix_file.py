"""An open file of the real disk, and what an OSError of the system means.

`storage.file_disk` opens these files.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from storage.disk import (
    BLOCK_BYTES,
    Buffer,
    DiskError,
    DiskFailedError,
    DiskFullError,
    MissingPathError,
    padding_after,
)
from storage.flusher import Flusher, sync
from storage.writeback import start_writeback

#: A vectored write takes at most this many buffers (Linux IOV_MAX).
MAX_VECTORS = 1024

#: A flush of more bytes than this happens beside the loop (`file_disk.FileDisk.flush`). An early write-back of so much
#: would take the loop's time and gain nothing.
AT_ONCE_BYTES = 8 * 1024

#: Of a file that hardly anybody reads, at least so much of the end stays in the page cache (`PosixFile.drop_cached`):
#: a new leader's consumers are seldom further behind.
CACHED_TAIL_BYTES = 32 << 20
#: So much of it is dropped at a time, on the caller's thread.
DROP_BYTES = 2 << 20

#: The errors of a full disk.
FULL_ERRNOS = (errno.ENOSPC, errno.EDQUOT)

_ZEROS = memoryview(bytes(BLOCK_BYTES))


@contextmanager
def disk_errors(path: str) -> Iterator[None]:
    """Turn an OSError into what it means for the node (see storage/disk.py)."""
    try:
        yield
    except OSError as error:
        raise disk_error(error, path) from error


def disk_error(error: OSError, path: str) -> DiskError:
    if error.errno in FULL_ERRNOS:
        return DiskFullError(f"{path}: {error.strerror}")
    if isinstance(error, FileNotFoundError):
        return MissingPathError(f"{path}: {error.strerror}")
    return DiskFailedError(f"{path}: {error.strerror or error}")


class PosixFile:
    """An open file that counts its size itself, so that no append pays for an fstat.

    The descriptor is closed with the last reference: a slice that is still being sent, or a flush that is under way,
    keeps a deleted segment readable. `flusher` may be flushing the file at the same time.
    """

    __slots__ = ("_dropped_bytes", "_fd", "_flusher", "_padded_size", "_path", "_size", "unflushed_bytes")

    #: Invariant: after every method, whether it raised DiskFullError or returned, the file on disk has
    #: exactly `_padded_size` bytes, zeros from `_size` on; _size <= _padded_size.
    _size: int
    _padded_size: int

    def __init__(self, path: str, fd: int, flusher: Flusher) -> None:
        self._path = path
        self._fd = fd
        self._flusher = flusher
        self._size = self._padded_size = os.fstat(fd).st_size
        #: What lies below this position was dropped from the page cache. If the file was cut and written again, it
        #: may be there all the same.
        self._dropped_bytes = 0
        #: Appended since the last flush was begun.
        self.unflushed_bytes = 0

    @property
    def path(self) -> str:
        return self._path

    @property
    def size(self) -> int:
        return self._size

    def append(self, buffers: Sequence[Buffer], *, is_padded: bool = False) -> None:
        size = len(buffers[0]) if len(buffers) == 1 else sum(map(len, buffers))
        end = padded_end = self._size + size
        if is_padded and end > self._padded_size and (padding := padding_after(end, size)):
            buffers = (*buffers, _ZEROS[:padding])
            padded_end += padding
        try:
            if len(buffers) == 1:
                written = os.pwrite(self._fd, buffers[0], self._size)
            else:
                written = os.pwritev(self._fd, buffers[:MAX_VECTORS], self._size)
            if self._size + written != padded_end:
                self._append_rest(buffers, written)
        except OSError as error:
            meaning = disk_error(error, self._path)
            if isinstance(meaning, DiskFullError):
                self.truncate(self._size)
            raise meaning from error
        self._size = end
        if padded_end > self._padded_size:
            self._padded_size = padded_end
        self.unflushed_bytes += size

    def _append_rest(self, buffers: Sequence[Buffer], written: int) -> None:
        """Write what a partial write, or the limit on vectors, has left over."""
        left = [memoryview(buffer) for buffer in buffers]
        position = self._size
        while True:
            position += written
            while left and written >= len(left[0]):
                written -= len(left.pop(0))
            if not left:
                return
            left[0] = left[0][written:]
            written = os.pwritev(self._fd, left[:MAX_VECTORS], position)
            if written == 0:
                raise OSError(errno.EIO, "a write made no progress")

    def write_at(self, position: int, data: Buffer) -> None:
        assert position + len(data) <= self._size, "write_at overwrites, append extends"
        with disk_errors(self._path):
            view = memoryview(data)
            while view:
                written = os.pwrite(self._fd, view, position)
                if written == 0:
                    raise OSError(errno.EIO, "a write made no progress")
                view = view[written:]
                position += written

    def read(self, position: int, size: int) -> memoryview:
        size = min(size, self._size - position)
        if size <= 0:
            return memoryview(b"")
        with disk_errors(self._path):
            data = os.pread(self._fd, size, position)
            if len(data) == size:
                return memoryview(data)
            return self._read_rest(data, position, size)

    def _read_rest(self, data: bytes, position: int, size: int) -> memoryview:
        """Go on after a short read (signals, reads above 2 GB)."""
        parts = bytearray(data)
        while len(parts) < size:
            more = os.pread(self._fd, size - len(parts), position + len(parts))
            if not more:
                # The file was deleted and is being shrunk, or another program has cut it.
                raise OSError(errno.EIO, "the file is shorter than what was written to it")
            parts += more
        return memoryview(parts)

    def fileno(self) -> int:
        return self._fd

    def truncate(self, size: int) -> None:
        with disk_errors(self._path):
            os.ftruncate(self._fd, size)
        self._size = self._padded_size = size

    def trim(self) -> None:
        if self._padded_size > self._size:
            self.truncate(self._size)

    def flush(self) -> None:
        with disk_errors(self._path):
            sync(self)
            self._flusher.check()
        self.unflushed_bytes = 0

    def start_writeback(self) -> None:
        size_bytes = self.unflushed_bytes
        if size_bytes > AT_ONCE_BYTES:
            return  # it would take the loop's time, and a larger flush, which happens beside the loop, gains nothing
        try:
            start_writeback(self._fd, self._size - size_bytes, size_bytes)
        except OSError as error:
            # Never "full", as with a flush that failed: what the page cache holds can no longer be trusted.
            raise DiskFailedError(f"{self._path}: write: {error.strerror}") from error

    def drop_cached(self) -> None:
        position = self._dropped_bytes
        if self._size - position >= CACHED_TAIL_BYTES + DROP_BYTES:
            self._dropped_bytes = position + DROP_BYTES
            if sys.platform == "linux":  # other systems have no such call
                with suppress(OSError):  # a hint: a file system that does not take it loses nothing
                    os.posix_fadvise(self._fd, position, DROP_BYTES, os.POSIX_FADV_DONTNEED)

    def close(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            with disk_errors(self._path):
                os.close(fd)

    def __del__(self) -> None:
        if getattr(self, "_fd", -1) >= 0:
            os.close(self._fd)
