"""Progress from the tasks to the driver, as UDP datagrams: a lost one is made good by the next."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass

# Task, then its totals so far.
_DATAGRAM = struct.Struct("!IQQQ")


@dataclass(frozen=True, slots=True)
class Progress:
    """Totals since the start; `acknowledged + failed <= sent`, but for datagrams under way."""

    sent: int
    acknowledged: int
    failed: int


class ProgressSender:
    """The task's side. Never blocks and never fails the task: progress is for the eye only."""

    def __init__(self, address: tuple[str, int], task: int) -> None:
        self._address = address
        self._task = task
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setblocking(False)

    def send(self, progress: Progress) -> None:
        datagram = _DATAGRAM.pack(self._task, progress.sent, progress.acknowledged, progress.failed)
        try:
            self._socket.sendto(datagram, self._address)
        except BlockingIOError:
            return  # the buffer is full; the next datagram says more

    def close(self) -> None:
        self._socket.close()


class ProgressReceiver:
    """The driver's side: calls `report` in a thread of its own for each datagram, with totals over all tasks."""

    def __init__(self, report: Callable[[Progress], None]) -> None:
        self._report = report
        self._tasks: dict[int, Progress] = {}
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="progress", daemon=True)

    @property
    def address(self) -> tuple[str, int]:
        host, port = self._socket.getsockname()
        return host, port

    def __enter__(self) -> ProgressReceiver:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        # An empty datagram wakes the thread.
        self._socket.sendto(b"", self.address)
        self._thread.join()
        self._socket.close()

    def _run(self) -> None:
        while not self._stopping.is_set():
            datagram = self._socket.recv(_DATAGRAM.size + 1)
            if len(datagram) != _DATAGRAM.size:
                continue
            task, sent, acknowledged, failed = _DATAGRAM.unpack(datagram)
            self._tasks[task] = Progress(sent, acknowledged, failed)
            latest = self._tasks.values()
            self._report(
                Progress(
                    sum(p.sent for p in latest),
                    sum(p.acknowledged for p in latest),
                    sum(p.failed for p in latest),
                )
            )
