"""What waits on a partition: acknowledgements and long polls.

Nothing here is a future or a task: a wait is an object with a method that is called when the partition moved.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

from protocol.errors import ErrorCode


class Acknowledged(Protocol):
    """A produce request's share in one partition."""

    def partition_done(self, slot: int, error: ErrorCode) -> None: ...


class FetchWaiter(Protocol):
    def wake(self) -> None:
        """The partition moved (data, leadership, log start): look again, at the latest in this turn. Not called again
        until it is added again."""


class AckQueue(deque[tuple[int, Acknowledged, int]]):
    """Waits for an offset bound, released in offset order: (bound, waiter, slot). A deque itself, because whether
    anybody waits is asked several times for every record.

    Invariant: the bounds are in ascending order.
    """

    __slots__ = ()

    def add(self, end_offset: int, waiter: Acknowledged, slot: int) -> None:
        """A repeated batch (an earlier offset) waits with the newest one: order of answers is order of arrival."""
        if self and self[-1][0] > end_offset:
            end_offset = self[-1][0]
        self.append((end_offset, waiter, slot))

    def release(self, up_to_offset: int) -> None:
        """Answer every wait whose records all lie below `up_to_offset`."""
        while self and self[0][0] <= up_to_offset:
            _, waiter, slot = self.popleft()
            waiter.partition_done(slot, ErrorCode.NONE)

    def fail(self, error: ErrorCode, above_offset: int = -1) -> None:
        """Answer with an error every wait whose bound lies above `above_offset` (default: all)."""
        failed: list[tuple[int, Acknowledged, int]] = []
        while self and self[-1][0] > above_offset:
            failed.append(self.pop())
        for _, waiter, slot in reversed(failed):
            waiter.partition_done(slot, error)
