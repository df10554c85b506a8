"""Producer ids, handed out from a block that the controller recorded first (replication.md section 8)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from protocol.errors import ErrorCode

#: (error, producer id or -1)
Answer = Callable[[ErrorCode, int], None]
#: Requests that may wait for a block; more are told to come again.
MAX_WAITING = 10_000


class ProducerIds:
    """This broker's block. Ids of a block that a restart threw away are never used: there are 2**63."""

    def __init__(
        self, call_controller: Callable[[str, dict[str, Any], Callable[[dict[str, Any]], None]], None]
    ) -> None:
        self._call_controller = call_controller
        self._next = 0
        self._end = 0
        self._waiting: list[Answer] = []
        self._asking = False

    def next_id(self, answer: Answer) -> None:
        if self._next < self._end:
            self._next += 1
            answer(ErrorCode.NONE, self._next - 1)
        elif len(self._waiting) >= MAX_WAITING:
            answer(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1)
        else:
            self._waiting.append(answer)
            self._ask()

    def _ask(self) -> None:
        if not self._asking:
            self._asking = True
            self._call_controller("allocate_producer_ids", {}, self._answered)

    def _answered(self, result: dict[str, Any]) -> None:
        self._asking = False
        waiting, self._waiting = self._waiting, []
        if result["error_code"] == ErrorCode.NONE:
            self._next, self._end = result["first"], result["end"]
            for answer in waiting:
                self.next_id(answer)
        else:
            for answer in waiting:
                answer(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1)
