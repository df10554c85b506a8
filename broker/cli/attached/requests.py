"""Requests of the process that owns the cluster: one JSON object in each line, over a pipe. So are the answers.

A request is {"id": number, "do": name, ...}. Its answer is {"id": number, "value": ...}, or has an "error" instead.
"""

from __future__ import annotations

import json
import os
import select
from collections import deque
from typing import Any

#: How often is looked whether the owner lives, besides the end of the pipe.
_OWNER_CHECK_S = 1.0


class OwnerGoneError(Exception):
    """The process that owns the cluster has ended."""


class SupersededError(Exception):
    """The owner has sent another request, so it does not wait for the answer of this one any more."""


class Requests:
    """Methods that wait raise OwnerGoneError.

    The end of the pipe tells that the owner is gone. A process that the owner forked may hold the pipe open, so its
    process id is looked at, too: an orphan gets another parent.
    """

    def __init__(self, requests: int, answers: int, owner_pid: int) -> None:
        """Two descriptors, and the process id of the owner, which is the parent of this process."""
        self._requests, self._answers, self._owner_pid = requests, answers, owner_pid
        self._lines: deque[bytes] = deque()
        self._unfinished = b""

    def next(self) -> dict[str, Any]:
        while not self._lines:
            self._read(_OWNER_CHECK_S)
        request: dict[str, Any] = json.loads(self._lines.popleft())
        return request

    def rest(self, duration_s: float) -> None:
        """Let time pass within a request. Raises SupersededError if the next request is there."""
        self._read(duration_s)
        if self._lines:
            raise SupersededError

    def answer(self, request: dict[str, Any], **answer: object) -> None:
        left = json.dumps({"id": request["id"], **answer}).encode() + b"\n"
        try:
            while left:
                left = left[os.write(self._answers, left) :]
        except BrokenPipeError:
            raise OwnerGoneError from None

    def _read(self, timeout_s: float) -> None:
        readable, _, _ = select.select([self._requests], [], [], timeout_s)
        if readable:
            received = os.read(self._requests, 1 << 16)
            if not received:
                raise OwnerGoneError
            *complete, self._unfinished = (self._unfinished + received).split(b"\n")
            self._lines.extend(complete)
        if os.getppid() != self._owner_pid:
            raise OwnerGoneError
