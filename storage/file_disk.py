"""The real `Disk`: one data directory on Linux or macOS.

Two threads run beside the event loop. The flusher (storage/flusher.py) makes files durable; the remover shrinks files
that were deleted long ago. Everything else happens on the caller's thread; so does a lone small flush on a quick disk.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import stat
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from functools import partial

from storage.disk import (
    BLOCK_BYTES,
    Buffer,
    DirectoryLockedError,
    DiskError,
    DiskFailedError,
    DiskFullError,
    File,
    MissingPathError,
    padding_after,
)
from storage.flusher import Flusher, Post, Watch, flush_all, start_flusher, sync
from storage.remover import Remover
from storage.volume import Volume
from storage.writeback import start_writeback

#: A vectored write takes at most this many buffers (Linux IOV_MAX).
MAX_VECTORS = 1024

#: A flush of at most so many bytes, on a disk whose flushes take no longer than this, is done on the caller's thread:
#: waking another thread and being woken by it costs as much again. Measured with 120 us flushes: a fifth less CPU for
#: each small produce request. Not for who waits for somebody else's flush as well (`may_block`).
AT_ONCE_BYTES = 8 * 1024
AT_ONCE_S = 0.0005
#: From so many on, one flush of the whole volume takes their place where it may.
VOLUME_FROM = 16
#: Flushes that would take longer than this one after the other are waited for together, on so many threads.
TOGETHER_FROM_S = 0.004
SYNC_THREADS = 16

#: Of a file that hardly anybody reads, at least so much of the end stays in the page cache (`PosixFile.drop_cached`):
#: a new leader's consumers are seldom further behind.
CACHED_TAIL_BYTES = 32 << 20
#: What is dropped of it at a time, on the caller's thread.
DROP_BYTES = 2 << 20

_ZEROS = memoryview(bytes(BLOCK_BYTES))

_FULL = (errno.ENOSPC, errno.EDQUOT)


@contextmanager
def _disk_errors(path: str) -> Iterator[None]:
    """Turn an OSError into what it means for the node (see storage/disk.py)."""
    try:
        yield
    except OSError as error:
        raise _meaning(error, path) from error


def _meaning(error: OSError, path: str) -> DiskError:
    if error.errno in _FULL:
        return DiskFullError(f"{path}: {error.strerror}")
    if isinstance(error, FileNotFoundError):
        return MissingPathError(f"{path}: {error.strerror}")
    return DiskFailedError(f"{path}: {error.strerror or error}")


class PosixFile:
    """An open file that counts its size itself, so that no append pays for an fstat.

    The descriptor is closed with the last reference: a slice that is still being sent, or a flush that is
    under way, keeps a deleted segment readable. `flusher` is who may be flushing it at the same time.
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
        #: What lies below was dropped from the page cache. Where it is cut and written again it may be there.
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
            meaning = _meaning(error, self._path)
            if isinstance(meaning, DiskFullError):
                self.truncate(self._size)
            raise meaning from error
        self._size = end
        if padded_end > self._padded_size:
            self._padded_size = padded_end
        self.unflushed_bytes += size

    def _append_rest(self, buffers: Sequence[Buffer], written: int) -> None:
        """Write what a partial write, or the limit on vectors, left over."""
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
        with _disk_errors(self._path):
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
        with _disk_errors(self._path):
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
                # A deleted file that is being shrunk, or one that somebody cut behind our back.
                raise OSError(errno.EIO, "the file is shorter than what was written to it")
            parts += more
        return memoryview(parts)

    def fileno(self) -> int:
        return self._fd

    def truncate(self, size: int) -> None:
        with _disk_errors(self._path):
            os.ftruncate(self._fd, size)
        self._size = self._padded_size = size

    def trim(self) -> None:
        if self._padded_size > self._size:
            self.truncate(self._size)

    def flush(self) -> None:
        with _disk_errors(self._path):
            sync(self)
            self._flusher.check()
        self.unflushed_bytes = 0

    def start_writeback(self) -> None:
        size_bytes = self.unflushed_bytes
        if size_bytes > AT_ONCE_BYTES:
            return  # it would take the loop's time, and a larger flush, beside the loop, gains nothing by it
        try:
            start_writeback(self._fd, self._size - size_bytes, size_bytes)
        except OSError as error:
            # Never "full", as with a flush that failed: what the page cache holds can no longer be trusted.
            raise DiskFailedError(f"{self._path}: write: {error.strerror}") from error

    def drop_cached(self) -> None:
        position = self._dropped_bytes
        if self._size - position >= CACHED_TAIL_BYTES + DROP_BYTES:
            self._dropped_bytes = position + DROP_BYTES
            if sys.platform == "linux":  # elsewhere the cache is the system's own business
                with suppress(OSError):  # a hint: a file system that does not take it loses nothing
                    os.posix_fadvise(self._fd, position, DROP_BYTES, os.POSIX_FADV_DONTNEED)

    def close(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            with _disk_errors(self._path):
                os.close(fd)

    def __del__(self) -> None:
        if getattr(self, "_fd", -1) >= 0:
            os.close(self._fd)


class FileDisk:
    """`Disk` on a real directory. Every OSError of the system becomes a DiskError.

    `post` runs a callback on the event loop from another thread (`loop.call_soon_threadsafe`); `watch` lets the
    native flusher report to it (`loop.add_reader`), without it the flusher is a Python thread.
    `remove_delay_s` is how long a deleted file keeps its bytes for readers that still hold a slice of it
    (Kafka's `file.delete.delay.ms`).
    """

    def __init__(
        self, root: str, post: Post, watch: Watch | None = None, *, remove_delay_s: float = 30.0
    ) -> None:
        self._root = os.path.abspath(root)
        with _disk_errors(self._root):
            os.makedirs(self._root, exist_ok=True)
            self._volume = Volume(self._root)
            self._flusher = start_flusher(post, watch)
        self._remover = Remover(remove_delay_s)
        #: For `flush_together`; made when it is needed.
        self._together: ThreadPoolExecutor | None = None
        self._lock_fd = -1

    @property
    def root(self) -> str:
        return self._root

    def open(self, path: str, *, create: bool = False) -> File:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        with _disk_errors(path):
            return PosixFile(path, os.open(path, flags, 0o644), self._flusher)

    def flush(
        self,
        files: Sequence[File],
        done: Callable[[DiskError | None], None],
        *,
        may_block: bool = True,
        meanwhile: Callable[[], None] | None = None,
    ) -> None:
        size_bytes = 0
        for file in files:
            assert isinstance(file, PosixFile)
            size_bytes += file.unflushed_bytes
            file.unflushed_bytes = 0
        flusher = self._flusher
        is_quick = size_bytes <= AT_ONCE_BYTES and len(files) * flusher.mean_s <= AT_ONCE_S
        if may_block and is_quick and flusher.is_idle:
            if meanwhile is not None:
                meanwhile()
            began_s = time.perf_counter()
            error = flush_all(files)
            flusher.note_duration(time.perf_counter() - began_s, len(files))
            done(error)
        else:
            flusher.submit(files, done)

    def exists(self, path: str) -> bool:
        return self._mode(path) is not None

    def list(self, path: str) -> list[str]:
        with _disk_errors(path):
            return sorted(os.listdir(path))

    def is_directory(self, path: str) -> bool:
        mode = self._mode(path)
        return mode is not None and stat.S_ISDIR(mode)

    def _mode(self, path: str) -> int | None:
        """Kind and permissions; None where nothing has that name. What cannot be looked at is not missing: os.path says
        it is, and a log that is missing is begun anew."""
        try:
            return os.stat(path).st_mode
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise _meaning(error, path) from error

    def make_directory(self, path: str) -> None:
        with _disk_errors(path):
            os.makedirs(path, exist_ok=True)

    def rename(self, old: str, new: str) -> None:
        with _disk_errors(old):
            os.rename(old, new)

    def unlink(self, path: str) -> None:
        with _disk_errors(path):
            os.unlink(path)

    def remove_tree(self, path: str) -> None:
        with _disk_errors(path):
            shutil.rmtree(path)

    def remove_later(self, path: str) -> None:
        self._remover.submit(path)

    def flush_directory(self, path: str) -> None:
        try:
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
        except OSError as error:
            raise DiskFailedError(f"{path}: flush of the folder: {error.strerror or error}") from error

    def flush_together(self, files: Sequence[File], directories: Sequence[str] = ()) -> None:
        if not (len(files) + len(directories) >= VOLUME_FROM and self._flush_volume()):
            self._flush_each(files, directories)
        with _disk_errors(self._root):
            self._flusher.check()

    def _flush_each(self, files: Sequence[File], directories: Sequence[str]) -> None:
        steps = [partial(sync, file) for file in files]
        steps += [partial(self.flush_directory, path) for path in directories]
        if len(steps) * self._flusher.mean_s <= TOGETHER_FROM_S:
            for step in steps:
                step()
            return
        if self._together is None:
            self._together = ThreadPoolExecutor(SYNC_THREADS, thread_name_prefix="disk-sync")
        futures = [self._together.submit(step) for step in steps]
        wait(futures)
        for future in futures:
            future.result()  # raises what it met

    def _flush_volume(self) -> bool:
        try:
            return self._volume.flush()
        except OSError as error:
            if error.errno in _FULL:
                return False  # somebody's; a file of ours says so by itself
            raise DiskFailedError(f"{self._root}: flush of the volume: {error.strerror or error}") from error

    def free_bytes(self) -> int:
        with _disk_errors(self._root):
            volume = os.statvfs(self._root)
        return volume.f_bavail * volume.f_frsize

    def total_bytes(self) -> int:
        with _disk_errors(self._root):
            volume = os.statvfs(self._root)
        return volume.f_blocks * volume.f_frsize

    def lock(self) -> None:
        path = os.path.join(self._root, ".lock")
        with _disk_errors(path):
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                os.close(fd)
                raise DirectoryLockedError(f"{self._root} is in use by another process") from error
        self._lock_fd = fd

    def close(self) -> None:
        with _disk_errors(self._root):
            self._flusher.close()
            self._remover.close()
            if self._together is not None:
                self._together.shutdown()
            self._volume.close()
            if self._lock_fd >= 0:
                os.close(self._lock_fd)
                self._lock_fd = -1
