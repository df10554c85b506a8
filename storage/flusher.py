"""Makes files durable beside the event loop, in the order of submission.

There are two implementations. One is a thread in C that never needs the interpreter's lock (native_flusher.c, Linux
only, built with the package if there is a C compiler). The other is a thread in Python. The one in C answers at once
however busy the loop is, and costs fewer wake-ups. Otherwise they do the same (performance.md section 6, "GIL and
fsync").
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import select
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import Protocol

from storage.disk import DiskError, DiskFailedError, File

Done = Callable[[DiskError | None], None]
#: Runs a callback on the event loop, from any thread.
Post = Callable[[Callable[[], None]], object]
#: Has the event loop call back whenever the descriptor is readable; None ends that.
Watch = Callable[[int, Callable[[], None] | None], None]

LIBRARY_PATH = Path(__file__).with_name("native_flusher.so")

#: Weight of the newest flush in the running mean.
_NEWEST_WEIGHT = 0.1


class Flusher(Protocol):
    """All methods are called on the loop's thread."""

    mean_s: float
    """Running mean of the time that one file takes."""

    @property
    def is_idle(self) -> bool:
        """Every submission was answered."""

    def submit(self, files: Sequence[File], done: Done) -> None:
        """Flush the files in order and call `done` on the loop. An error ends the submission, not the flusher."""

    def check(self) -> None:
        """Wait for the flush under way, and raise its error. For a flush beside this flusher: Linux reports a write
        that failed once per open file, so whoever asks second is told that all is well."""

    def close(self) -> None:
        """Finish what was submitted and end the thread. `done` may not be called for it."""

    def note_duration(self, taken_s: float, file_count: int) -> None:
        """A flush of so many files, also one beside the flusher, took so long."""


class _Mean:
    """Starts high: a disk counts as quick only when it was."""

    def __init__(self) -> None:
        self.mean_s = 0.001

    def note_duration(self, taken_s: float, file_count: int) -> None:
        self.mean_s += _NEWEST_WEIGHT * (taken_s / max(1, file_count) - self.mean_s)


def start_flusher(post: Post, watch: Watch | None) -> Flusher:
    """The native flusher if it was built and the loop can watch its descriptor, otherwise the Python one."""
    if watch is not None and LIBRARY_PATH.exists():
        flusher = NativeFlusher(watch)
        if flusher.is_running:
            return flusher
    return ThreadFlusher(post)


def sync(file: File) -> None:
    """Make one open file durable, size included, on this thread. Raises DiskFailedError.

    macOS's fsync stops at the drive's cache; only F_FULLFSYNC goes through it (fcntl(2)).
    """
    try:
        if sys.platform == "darwin":
            fcntl.fcntl(file.fileno(), fcntl.F_FULLFSYNC)
        else:
            os.fdatasync(file.fileno())
    except OSError as error:
        # Never "full": after a failed fsync the page cache may have dropped the pages (fsyncgate).
        raise DiskFailedError(f"{file.path}: flush: {error.strerror or error}") from error


def flush_all(files: Sequence[File]) -> DiskError | None:
    """Flush now, on this thread."""
    try:
        for file in files:
            sync(file)
    except DiskError as error:
        return error
    except Exception as error:
        # Anything else is a defect of ours. It is reported all the same: without an answer the node would hang for
        # ever.
        return DiskFailedError(f"flush: {error!r}")
    return None


class ThreadFlusher(_Mean):
    """A Python thread with a queue."""

    def __init__(self, post: Post) -> None:
        super().__init__()
        self._post = post
        #: In the order of submission, and of the answers.
        self._unanswered: deque[_Submission] = deque()
        # Implemented in C: a queue made of threading's primitives makes a flush round a third dearer.
        self._queue: SimpleQueue[_Submission | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="disk-flusher", daemon=True)
        self._thread.start()

    @property
    def is_idle(self) -> bool:
        return not self._unanswered

    def submit(self, files: Sequence[File], done: Done) -> None:
        submission = _Submission(self, files, done)
        self._unanswered.append(submission)
        self._queue.put(submission)

    def check(self) -> None:
        for submission in self._unanswered:
            with submission.under_way:
                if submission.error is not None:
                    raise submission.error

    def close(self) -> None:
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        while True:
            submission = self._queue.get()
            if submission is None:
                return
            submission.run()
            self._post(submission)

    def answered(self, taken_s: float, file_count: int) -> None:
        self._unanswered.popleft()
        self.note_duration(taken_s, file_count)


class _Submission:
    """What the thread runs. It is also the call-back that answers on the loop's thread."""

    __slots__ = ("_done", "_files", "_flusher", "_taken_s", "error", "under_way")

    def __init__(self, flusher: ThreadFlusher, files: Sequence[File], done: Done) -> None:
        self._flusher = flusher
        self._files = files
        self._done = done
        self._taken_s = 0.0
        self.error: DiskError | None = None
        #: Held until `error` is final.
        self.under_way = threading.Lock()
        self.under_way.acquire()

    def run(self) -> None:
        began_s = time.perf_counter()
        self.error = flush_all(self._files)
        self._taken_s = time.perf_counter() - began_s
        self.under_way.release()

    def __call__(self) -> None:
        self._flusher.answered(self._taken_s, len(self._files))
        self._done(self.error)


class NativeFlusher(_Mean):
    """The thread of native_flusher.c. It takes one submission at a time. The others wait here."""

    def __init__(self, watch: Watch) -> None:
        super().__init__()
        # PyDLL keeps the interpreter's lock: the calls are shorter than releasing and taking it.
        self._library = library = ctypes.PyDLL(str(LIBRARY_PATH))
        library.flusher_start.restype = ctypes.c_void_p
        library.flusher_taken_ns.restype = ctypes.c_int64
        self._watch = watch
        #: In the order of submission. The thread works at the first.
        self._submissions: deque[tuple[Sequence[File], Done]] = deque()
        self._fds = (ctypes.c_int * 0)()
        address = library.flusher_start()
        self.is_running = address is not None
        if self.is_running:
            self._handle = ctypes.c_void_p(address)
            self._event_fd: int = library.flusher_event_fd(self._handle)
            watch(self._event_fd, self._finished)

    @property
    def is_idle(self) -> bool:
        return not self._submissions

    def submit(self, files: Sequence[File], done: Done) -> None:
        # A file may not be closed before `done`, and stays open as long as it is named here.
        self._submissions.append((files, done))
        if len(self._submissions) == 1:
            self._begin()

    def _begin(self) -> None:
        files = self._submissions[0][0]
        self._fds = (ctypes.c_int * len(files))(*(file.fileno() for file in files))
        self._library.flusher_submit(self._handle, self._fds, len(files))

    def _finished(self) -> None:
        """The eventfd is readable: the thread has a result."""
        done, error = self._take()
        if self._submissions:
            self._begin()
        done(error)

    def check(self) -> None:
        if self._submissions:
            self._wait()
            if (error := self._error()) is not None:
                raise error

    def _wait(self) -> None:
        """Wait until the thread has a result. `_take` fetches it."""
        readable = select.poll()
        readable.register(self._event_fd, select.POLLIN)
        readable.poll()

    def _error(self) -> DiskError | None:
        """The result of the first submission."""
        code: int = self._library.flusher_error(self._handle)
        if not code:
            return None
        path = self._submissions[0][0][self._library.flusher_failed_index(self._handle)].path
        return DiskFailedError(f"{path}: flush: {os.strerror(code)}")

    def _take(self) -> tuple[Done, DiskError | None]:
        os.read(self._event_fd, 8)
        error = self._error()
        files, done = self._submissions.popleft()
        self.note_duration(self._library.flusher_taken_ns(self._handle) / 1e9, len(files))
        return done, error

    def close(self) -> None:
        self._watch(self._event_fd, None)
        while self._submissions:
            self._wait()
            self._take()
            if self._submissions:
                self._begin()
        self._library.flusher_stop(self._handle)
