"""An answer about several partitions that waits for some of them, and its timeout."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from broker.scheduling.background import Background
from broker.scheduling.ticks import SLOW_TICK_S, Ticks
from broker.serving.steps import FEW_PARTS, Steps, reply
from protocol.codec import encode
from protocol.errors import ErrorCode
from protocol.schema import Message

if TYPE_CHECKING:
    from broker.network.request import Request
    from broker.serving.context import Context

#: The error code of a partition that is not answered yet. No Kafka error code has this value.
PENDING = -32768


class PartitionAnswer(Protocol):
    error_code: int


A = TypeVar("A", bound=PartitionAnswer)


class TimedAnswer(Protocol):
    deadline: float

    def time_out(self) -> None: ...


class PendingAnswers:
    """The pending answers of a node. Each is timed out at its deadline (loop time)."""

    def __init__(self, background: Background, ticks: Ticks) -> None:
        self._background = background
        self._open: dict[TimedAnswer, None] = {}
        ticks.every(SLOW_TICK_S, self._tick)

    def __len__(self) -> int:
        return len(self._open)

    def add(self, answer: TimedAnswer) -> None:
        self._open[answer] = None

    def discard(self, answer: TimedAnswer) -> None:
        self._open.pop(answer, None)

    def _tick(self, now: float) -> None:
        late = [answer for answer in self._open if answer.deadline <= now]
        if late:
            self._background.run(self._time_out(late))

    def _time_out(self, late: list[TimedAnswer]) -> Steps:
        """In steps: thousands of requests may have waited for the same partition."""
        for answer in late:
            if answer in self._open:
                answer.time_out()
                yield


class PendingAnswer(Generic[A]):
    """An answer that is sent when every partition is done, or when the request's timeout is over.

    Call `add` for each partition that waits: its error code is PENDING until `partition_done`. Call `wait_or_reply`
    when all partitions of the request have been handled.
    """

    __slots__ = ("_context", "_missing", "_request", "_response", "_slots", "deadline")

    def __init__(self, context: Context, request: Request, response: Message, timeout_ms: int) -> None:
        self._context = context
        self._request = request
        self._response = response
        self._slots: list[A] = []
        #: Partitions without an answer, plus one while the request is still being handled.
        self._missing = 1
        #: Loop time at which the partitions that are not done are answered REQUEST_TIMED_OUT.
        self.deadline = context.now() + max(timeout_ms, 0) / 1000

    def add(self, answer: A) -> int:
        """Add a partition that waits. Returns its slot, for `partition_done`."""
        answer.error_code = PENDING
        self._slots.append(answer)
        self._missing += 1
        return len(self._slots) - 1

    def wait_or_reply(self) -> None:
        """Answer now if no partition waits, else when the last one is done."""
        self._part_done()
        if self._missing > 0:
            self._request.has_waited = True
            self._context.pending.add(self)

    def partition_done(self, slot: int, error: ErrorCode) -> None:
        answer = self._slots[slot]
        if answer.error_code == PENDING:
            answer.error_code = error
            self._completed(answer, slot)
            self._part_done()

    def _completed(self, answer: A, slot: int) -> None:
        """The partition's error code is known: fill in the rest."""
        raise NotImplementedError

    def _part_done(self) -> None:
        self._missing -= 1
        if self._missing == 0:
            self._context.pending.discard(self)
            if len(self._slots) <= FEW_PARTS:
                self._request.reply_bytes(encode(self._response, self._request.api_version))
            else:
                self._context.long_requests.resume(self._request, reply(self._request, self._response))

    def time_out(self) -> None:
        self._context.pending.discard(self)
        self._context.long_requests.resume(self._request, self._time_out())

    def _time_out(self) -> Steps:
        for slot in range(len(self._slots)):
            self.partition_done(slot, ErrorCode.REQUEST_TIMED_OUT)
            yield
