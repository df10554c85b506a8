"""Producer ids, handed out from a block that the controller recorded first (replication.md section 8)."""

from __future__ import annotations

from collections.abc import Callable

from broker.controller.client import ControllerClient
from protocol.controller.brokers import AllocateProducerIds, AllocateProducerIdsResult
from protocol.errors import ErrorCode, KafkaError

#: (error, producer id or -1)
Answer = Callable[[ErrorCode, int], None]
#: Requests that may wait for a block; more are told to come again.
MAX_WAITING = 10_000


class ProducerIds:
    """This broker's block. Ids of a block that a restart threw away are never used: there are 2**63."""

    def __init__(self, controller: ControllerClient) -> None:
        self._controller = controller
        self._next = 0
        self._end = 0
        self._waiting: list[Answer] = []
        self._is_requesting = False

    def next_id(self, answer: Answer) -> None:
        if self._next < self._end:
            self._next += 1
            answer(ErrorCode.NONE, self._next - 1)
        elif len(self._waiting) >= MAX_WAITING:
            answer(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1)
        else:
            self._waiting.append(answer)
            self._request_block()

    def take(self) -> int:
        """One of the block, now. Raises COORDINATOR_LOAD_IN_PROGRESS if there is none; then another block comes."""
        if self._next == self._end:
            self._request_block()
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        self._next += 1
        return self._next - 1

    def _request_block(self) -> None:
        if not self._is_requesting:
            self._is_requesting = True
            self._controller.call(AllocateProducerIds(), self._answered)

    def _answered(self, result: AllocateProducerIdsResult | KafkaError) -> None:
        self._is_requesting = False
        waiting, self._waiting = self._waiting, []
        if isinstance(result, KafkaError):
            for answer in waiting:
                answer(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1)
        else:
            self._next, self._end = result.first, result.first + result.count
            for answer in waiting:
                self.next_id(answer)
