"""The real `Disk`: one data directory on Linux or macOS.

Two threads run beside the event loop. The flusher (storage/flusher.py) makes files durable. The remover shrinks files
that were deleted long ago. Everything else happens on the caller's thread, a lone small flush on a quick disk included.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial

from storage.disk import DirectoryLockedError, DiskError, DiskFailedError, File
from storage.flusher import Post, Watch, flush_all, start_flusher, sync
from storage.posix_file import AT_ONCE_BYTES, FULL_ERRNOS, PosixFile, disk_error, disk_errors
from storage.remover import Remover
from storage.volume import Volume

#: A flush of at most AT_ONCE_BYTES, on a disk whose flushes take no longer than this, happens on the caller's thread:
#: waking another thread and being woken by it costs as much again. With flushes of 120 us, each small produce request
#: takes a fifth less CPU. A caller that waits for another node's flush, too, does not allow it (`may_block`).
AT_ONCE_S = 0.0005
#: From so many flushes on, one flush of the whole volume takes their place if it may.
VOLUME_FROM = 16
#: Flushes that would take longer than this one after the other happen together, on so many threads.
TOGETHER_FROM_S = 0.004
SYNC_THREADS = 16


class FileDisk:
    """`Disk` on a real directory. Every OSError of the system becomes a DiskError.

    `post` runs a callback on the event loop from another thread (`loop.call_soon_threadsafe`). `watch` lets the native
    flusher report to the loop (`loop.add_reader`); without it the flusher is a Python thread. `remove_delay_s` is how
    long a deleted file keeps its bytes for readers that still hold a slice of it (Kafka's `file.delete.delay.ms`).
    """

    def __init__(
        self, root: str, post: Post, watch: Watch | None = None, *, remove_delay_s: float = 30.0
    ) -> None:
        self._root = os.path.abspath(root)
        with disk_errors(self._root):
            os.makedirs(self._root, exist_ok=True)
            self._volume = Volume(self._root)
            self._flusher = start_flusher(post, watch)
        self._remover = Remover(remove_delay_s)
        #: For `flush_together`; created when it is needed.
        self._together: ThreadPoolExecutor | None = None
        self._lock_fd = -1

    @property
    def root(self) -> str:
        return self._root

    def open(self, path: str, *, create: bool = False) -> File:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        with disk_errors(path):
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
        with disk_errors(path):
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
            raise disk_error(error, path) from error

    def make_directory(self, path: str) -> None:
        with disk_errors(path):
            if not os.path.isdir(path):
                os.mkdir(path)

    def rename(self, old: str, new: str) -> None:
        with disk_errors(old):
            os.rename(old, new)

    def unlink(self, path: str) -> None:
        with disk_errors(path):
            os.unlink(path)

    def remove_tree(self, path: str) -> None:
        with disk_errors(path):
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
        with disk_errors(self._root):
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
            if error.errno in FULL_ERRNOS:
                return False  # perhaps of another program: each of our files reports by itself whether it was its own
            raise DiskFailedError(f"{self._root}: flush of the volume: {error.strerror or error}") from error

    def free_bytes(self) -> int:
        with disk_errors(self._root):
            volume = os.statvfs(self._root)
        return volume.f_bavail * volume.f_frsize

    def total_bytes(self) -> int:
        with disk_errors(self._root):
            volume = os.statvfs(self._root)
        return volume.f_blocks * volume.f_frsize

    def lock(self) -> None:
        path = os.path.join(self._root, ".lock")
        with disk_errors(path):
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                os.close(fd)
                raise DirectoryLockedError(f"{self._root} is in use by another process") from error
        self._lock_fd = fd

    def close(self) -> None:
        with disk_errors(self._root):
            self._flusher.close()
            self._remover.close()
            if self._together is not None:
                self._together.shutdown()
            self._volume.close()
            if self._lock_fd >= 0:
                os.close(self._lock_fd)
                self._lock_fd = -1
