"""Deletes renamed files beside the event loop, slowly: freeing much at once stalls the flushes of all files."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from contextlib import suppress

#: Freeing much at once stalls every fdatasync on ext4. With steps of 4 MB a flush waits for 12 to 14 ms at most
#: (performance.md section 1).
SHRINK_STEP_BYTES = 4 * 1024 * 1024
SHRINK_PAUSE_S = 0.005


class Remover:
    """A thread that deletes files slowly. What is left when the process ends has a name (`.deleted`, `-delete`) by
    which the next start finds it."""

    def __init__(self, delay_s: float) -> None:
        self._delay_s = delay_s
        self._queue: deque[tuple[float, str]] = deque()
        self._changed = threading.Condition()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def submit(self, path: str) -> None:
        with self._changed:
            self._queue.append((time.monotonic() + self._delay_s, path))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="disk-remover", daemon=True)
                self._thread.start()
            self._changed.notify()

    def close(self) -> None:
        self._stopping.set()
        with self._changed:
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while (path := self._next()) is not None:
            # Nothing depends on a file that cannot be deleted, so the node goes on. The next start tries again.
            with suppress(OSError):
                self._remove(path)

    def _next(self) -> str | None:
        """Wait until the oldest path is due. None: the disk closes."""
        with self._changed:
            while not self._stopping.is_set():
                if not self._queue:
                    self._changed.wait()
                    continue
                due, path = self._queue[0]
                wait_s = due - time.monotonic()
                if wait_s <= 0:
                    self._queue.popleft()
                    return path
                self._changed.wait(wait_s)
        return None

    def _remove(self, path: str) -> None:
        if not os.path.isdir(path):
            self._shrink(path)
            return
        for folder, folders, files in os.walk(path, topdown=False):
            for name in files:
                self._shrink(os.path.join(folder, name))
            for name in folders:
                os.rmdir(os.path.join(folder, name))
        os.rmdir(path)

    def _shrink(self, path: str) -> None:
        size = os.stat(path).st_size
        while size > SHRINK_STEP_BYTES:
            size -= SHRINK_STEP_BYTES
            os.truncate(path, size)
            if self._stopping.wait(SHRINK_PAUSE_S):
                return
        os.unlink(path)
