"""The line between a loading job's driver and its tasks (TCP): totals come up it, the order to stop goes down.

A task says hello with the job's token and its number, then sends its totals now and then. The driver sends one byte
when the tasks are to send no more records. A line that cannot be had or breaks ends no task: records are what counts.
"""

from __future__ import annotations

import logging
import secrets
import selectors
import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass

# Sent, acknowledged, failed: a task's totals so far.
_TOTALS = struct.Struct("!QQQ")
TOKEN_BYTES = 16
# The job's token, then the task's number.
_HELLO = struct.Struct(f"!{TOKEN_BYTES}sI")
_STOP = b"S"
_CONNECT_TIMEOUT_S = 10.0
_RECEIVE_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Progress:
    """Totals since the start; `acknowledged + failed <= sent`, but for messages under way."""

    sent: int
    acknowledged: int
    failed: int


@dataclass(frozen=True, slots=True)
class LineAddress:
    """Where the driver listens, and the token that its tasks show."""

    host: str
    port: int
    token: bytes


class TaskLine:
    """A task's side. Never blocks after it is made, and never fails the task."""

    def __init__(self, address: LineAddress, task: int) -> None:
        self.is_told_to_stop = False
        self._socket: socket.socket | None = None
        self._unsent = _HELLO.pack(address.token, task)
        try:
            self._socket = socket.create_connection((address.host, address.port), _CONNECT_TIMEOUT_S)
        except OSError as error:
            # The job runs on without a moving bar, and Ctrl-C ends it without its summary.
            logging.getLogger(__name__).warning("no line to %s:%d: %s", address.host, address.port, error)
        else:
            self._socket.setblocking(False)

    def exchange(self, progress: Progress) -> None:
        """Send the totals; look whether the driver has told to stop."""
        if self._socket is None:
            return
        try:
            # A message is sent whole before the next one is begun. What a full buffer delays, the next one replaces.
            if len(self._unsent) <= _HELLO.size:
                self._unsent += _TOTALS.pack(progress.sent, progress.acknowledged, progress.failed)
            self._send()
            self.is_told_to_stop |= self._socket.recv(_RECEIVE_BYTES)[:1] == _STOP
        except BlockingIOError:
            return
        except OSError:
            self.close()  # the driver is gone, and Spark will end this task

    def _send(self) -> None:
        assert self._socket is not None
        try:
            sent = self._socket.send(self._unsent)
        except BlockingIOError:
            return
        self._unsent = self._unsent[sent:]

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


class DriverLines:
    """The driver's side: calls `report` in a thread of its own, with totals over all tasks, when one has told its
    own."""

    def __init__(self, host: str, report: Callable[[Progress], None]) -> None:
        """`host`: what the tasks know the driver as."""
        self._report = report
        self._tasks: dict[int, Progress] = {}
        self._token = secrets.token_bytes(TOKEN_BYTES)
        is_local = host in ("127.0.0.1", "localhost")
        self._listener = socket.create_server((host if is_local else "", 0))
        self._listener.setblocking(False)
        self._host = host
        #: Of each connection: what came of it and is not a whole message, and the task once it has said which.
        self._lines: dict[socket.socket, tuple[bytes, int | None]] = {}
        self._waker, self._wake = socket.socketpair()
        self._is_stop_ordered = False
        self._is_closing = False
        self._thread = threading.Thread(target=self._run, name="task-lines", daemon=True)

    @property
    def address(self) -> LineAddress:
        return LineAddress(self._host, self._listener.getsockname()[1], self._token)

    @property
    def totals(self) -> Progress:
        """Of all tasks, as far as they have told them."""
        latest = list(self._tasks.values())
        return Progress(
            sum(each.sent for each in latest),
            sum(each.acknowledged for each in latest),
            sum(each.failed for each in latest),
        )

    def order_stop(self) -> None:
        """Tell all tasks, also those that have not called yet, to send no more records."""
        self._is_stop_ordered = True
        self._wake.send(b"\0")

    def __enter__(self) -> DriverLines:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_closing = True
        self._wake.send(b"\0")
        self._thread.join()
        for each in (self._listener, self._waker, self._wake, *self._lines):
            each.close()

    def _run(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ)
            selector.register(self._waker, selectors.EVENT_READ)
            while not self._is_closing:
                for ready, _ in selector.select():
                    self._handle(selector, ready.fileobj)

    def _handle(self, selector: selectors.BaseSelector, ready: object) -> None:
        if ready is self._waker:
            self._waker.recv(_RECEIVE_BYTES)
            for line, (_, task) in list(self._lines.items()):
                if task is not None:
                    self._tell(line)
        elif ready is self._listener:
            line, _ = self._listener.accept()
            line.setblocking(False)
            self._lines[line] = (b"", None)
            selector.register(line, selectors.EVENT_READ)
        else:
            assert isinstance(ready, socket.socket)
            if not self._receive(ready):
                selector.unregister(ready)
                del self._lines[ready]
                ready.close()

    def _receive(self, line: socket.socket) -> bool:
        """False: the line has ended, or a stranger is on it."""
        try:
            data = line.recv(_RECEIVE_BYTES)
        except OSError:
            return False
        before, task = self._lines[line]
        received = before + data
        if task is None and len(received) >= _HELLO.size:
            token, task = _HELLO.unpack_from(received)
            if not secrets.compare_digest(token, self._token):
                return False
            received = received[_HELLO.size :]
            self._tell(line)
        if task is not None and (whole := len(received) // _TOTALS.size):
            self._tasks[task] = Progress(*_TOTALS.unpack_from(received, (whole - 1) * _TOTALS.size))
            received = received[whole * _TOTALS.size :]
            self._report(self.totals)
        self._lines[line] = (received, task)
        return bool(data)

    def _tell(self, line: socket.socket) -> None:
        if self._is_stop_ordered and not self._is_closing:
            try:
                line.send(_STOP)
            except OSError:
                return  # its task has ended; `_receive` will see it
