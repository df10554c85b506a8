"""What waits on a partition: acknowledgements and long polls.

Nothing here is a future or a task: a wait is an object with a method that is called when the partition moved.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Protocol

from protocol.errors import ErrorCode

if TYPE_CHECKING:
    from broker.replication.replica import Replica


class Acknowledged(Protocol):
    """A produce request's share in one partition."""

    def partition_done(self, slot: int, error: ErrorCode) -> None: ...


class FetchWaiter(Protocol):
    def wake(self) -> None:
        """The partition moved (data, leadership, log start): look again, at the latest in this turn. Not called again
        until it is added again."""


class _InSync:
    """A wait with acks=all, which promises min.insync.replicas copies. A partition that has fewer voters by then can
    only say that the batch is written, as Apache Kafka does."""

    __slots__ = ("_replica", "_waiter")

    def __init__(self, replica: Replica, waiter: Acknowledged) -> None:
        self._replica = replica
        self._waiter = waiter

    def partition_done(self, slot: int, error: ErrorCode) -> None:
        if error is ErrorCode.NONE and not has_enough_voters(self._replica):
            error = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        self._waiter.partition_done(slot, error)


def has_enough_voters(replica: Replica) -> bool:
    """For min.insync.replicas."""
    return len(replica.group.configuration.voters) >= replica.config.min_insync_replicas


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


class ReplicaWaits:
    """What waits on one replica."""

    __slots__ = ("_fetches", "_replica", "commit", "flush")

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        #: acks=all, coordinators, and markers: bounds of `acknowledged_offset`.
        self.commit = AckQueue()
        #: acks=1: bounds of what is durable here.
        self.flush = AckQueue()
        #: Long polls, in the order in which they came.
        self._fetches: dict[FetchWaiter, None] = {}

    # -- acknowledgements --------------------------------------------------------------------------------

    def add_commit(self, end_offset: int, waiter: Acknowledged, slot: int) -> None:
        """Call the waiter when everything below `end_offset` is committed, and durable on min.insync.replicas voters
        (on all, where there are fewer)."""
        if end_offset <= self._replica.high_watermark and self.acknowledged_offset() >= end_offset:
            waiter.partition_done(slot, ErrorCode.NONE)
        else:
            self.commit.add(end_offset, waiter, slot)

    def add_in_sync(self, end_offset: int, waiter: Acknowledged, slot: int) -> None:
        """As `add_commit`, with an error where there are fewer (acks=all)."""
        self.add_commit(end_offset, _InSync(self._replica, waiter), slot)

    def add_flush(self, end_offset: int, waiter: Acknowledged, slot: int) -> None:
        """Call the waiter when everything below `end_offset` is durable here (acks=1)."""
        if self._replica.durable_offset >= end_offset:
            waiter.partition_done(slot, ErrorCode.NONE)
        else:
            self.flush.add(end_offset, waiter, slot)

    def acknowledged_offset(self) -> int:
        """Below this, records are committed and durable on max(majority, min.insync.replicas) voters (on all,
        where there are fewer)."""
        replica = self._replica
        group, required = replica.group, replica.config.min_insync_replicas
        voters = len(group.configuration.voters)
        # Until a change of members is committed, the high watermark is what a majority of the voters before it holds.
        if required <= voters // 2 + 1 and not group.is_change_uncommitted:
            return replica.high_watermark
        if not replica.is_leader:
            return 0  # its own removal was committed, and that ended its leadership: nobody reports to it any more
        durable = group.durable_end(min(required, voters))
        return replica.offset_of(min(group.commit_end, durable))

    def release_commits(self) -> None:
        """More is committed, or durable on more voters."""
        if self.commit:
            self.commit.release(self.acknowledged_offset())

    def release_flushes(self) -> None:
        """More is durable here."""
        if self.flush:
            self.flush.release(self._replica.durable_offset)

    def fail(self, error: ErrorCode, above_offset: int = -1) -> None:
        """Answer with an error every acknowledgement whose bound lies above `above_offset` (default: all)."""
        self.commit.fail(error, above_offset)
        self.flush.fail(error, above_offset)

    # -- long polls --------------------------------------------------------------------------------------

    def add_fetch(self, waiter: FetchWaiter) -> None:
        """Wake it once. Adding it again changes nothing."""
        self._fetches[waiter] = None

    def remove_fetch(self, waiter: FetchWaiter) -> None:
        self._fetches.pop(waiter, None)

    @property
    def fetch_count(self) -> int:
        return len(self._fetches)

    def wake_fetches(self) -> None:
        if self._fetches:
            waiters, self._fetches = self._fetches, {}
            for waiter in waiters:
                waiter.wake()
