"""Ranges of one replica's log on their way to its followers: from memory what this turn wrote, else from the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.replication.ranges import MAX_APPEND_BYTES, append_message
from protocol import peer
from raft.types import Send
from storage.disk import Buffer
from storage.errors import CorruptLogError

if TYPE_CHECKING:
    from broker.replication.replica import Replica


class RangeSender:
    """Keeps what the last write put into the log, so that followers are sent it without reading it back."""

    __slots__ = ("_buffers", "_replica", "_size_bytes", "_start_index")

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        #: Invariant: either nothing is kept, or what is kept reaches from `_start_index` to the log's end.
        self._buffers: list[Buffer] = []
        self._start_index = -1
        self._size_bytes = 0

    def wrote(self, buffers: list[Buffer], start_index: int, size_bytes: int) -> None:
        """The log ends with these batches now."""
        self._buffers = buffers
        self._start_index = start_index
        self._size_bytes = size_bytes

    def forget(self) -> None:
        """What is kept does not reach the log's end any more, or nobody will be sent it."""
        self._buffers = []
        self._start_index = -1

    def release(self) -> None:
        """Give the memory back when nobody waits for it; who still lacks it is sent it from the log."""
        group = self._replica.group
        if self._buffers and group.commit_end >= group.end_index and not group.has_lingering:
            self.forget()

    def send(self, order: Send) -> None:
        """Send ranges to one follower while the group has some for it."""
        replica = self._replica
        following: Send | None = order
        while following is not None:
            found = self._next(following)
            if found is None:
                return
            message, size_bytes = found
            replica.host.send(following.to, message)
            following = replica.group.sent(following.to, message.to_index, size_bytes)

    def _next(self, order: Send) -> tuple[peer.Append, int] | None:
        """The message and the size of its records. None: the log is corrupt, and the host knows."""
        replica = self._replica
        start = order.start
        if start == self._start_index and self._size_bytes <= MAX_APPEND_BYTES:
            return append_message(
                replica, order, self._buffers, None, replica.group.end_index
            ), self._size_bytes
        if order.end_limit <= start:
            return append_message(replica, order, [], None, start), 0
        try:
            part = replica.log.read_range(start, order.end_limit, MAX_APPEND_BYTES)
        except CorruptLogError as error:
            replica.host.log_corrupt(replica, error)
            return None
        if part.data is None:
            return append_message(replica, order, [], part.row, part.end_index), 0
        return append_message(
            replica, order, [part.data.view()], part.row, part.end_index
        ), part.data.size_bytes
