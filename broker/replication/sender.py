"""Ranges of one replica's log on their way to its followers: from memory what was appended last, else from the log."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from broker.replication.ranges import MAX_APPEND_BYTES, MAX_METADATA_APPEND_BYTES, append_message
from protocol import peer
from protocol.records.batch import BatchHeader
from raft.types import Send
from storage.disk import Buffer
from storage.errors import CorruptLogError

if TYPE_CHECKING:
    from broker.replication.replica import Replica


class _Kept(NamedTuple):
    """Batches that were appended together, or one of them where all would be more than a range may hold."""

    start_index: int
    end_index: int
    buffers: Sequence[Buffer]
    size_bytes: int


class RangeSender:
    """Keeps what was appended last, so that followers are sent it before it is written, and without reading it back."""

    __slots__ = ("_kept", "_max_bytes", "_replica", "_size_bytes")

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        #: Of a range, unless one batch is larger.
        self._max_bytes = MAX_METADATA_APPEND_BYTES if replica.is_metadata else MAX_APPEND_BYTES
        #: Invariant: each begins where the one before ends, and the last ends where the group says that the log does.
        #: So does what the log itself lacks until the turn has written it.
        self._kept: deque[_Kept] = deque()
        self._size_bytes = 0

    def keep_appended(
        self, buffers: Sequence[Buffer], headers: Sequence[BatchHeader], start_index: int, end_index: int
    ) -> int:
        """The log will end with these batches, and the group does not know it yet. Returns their size in bytes."""
        if not self._replica.group.has_deferred:
            self.discard()  # everybody who keeps up has been sent what came before
        size_bytes = sum(map(len, buffers))
        if size_bytes <= self._max_bytes:
            self._kept.append(_Kept(start_index, end_index, buffers, size_bytes))
        else:
            for buffer, header in zip(buffers, headers, strict=True):
                batch_end = start_index + header.last_offset_delta + 1
                self._kept.append(_Kept(start_index, batch_end, (buffer,), header.size_bytes))
                start_index = batch_end
        self._size_bytes += size_bytes
        while self._size_bytes > size_bytes + self._max_bytes:
            self._size_bytes -= self._kept.popleft().size_bytes
        return size_bytes

    def discard(self) -> None:
        """What is kept does not reach the log's end any more, or nobody will be sent it."""
        self._kept.clear()
        self._size_bytes = 0

    def release(self) -> None:
        """Give the memory back when nobody waits for it; who still lacks it is sent it from the log."""
        group = self._replica.group
        if self._kept and group.commit_end >= group.end_index and not group.has_deferred:
            self.discard()

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
        start = order.start_index
        if order.end_limit <= start:
            return append_message(replica, order, [], None, start), 0
        kept = self._kept_from(start)
        if kept is not None:
            return append_message(replica, order, kept.buffers, None, kept.end_index), kept.size_bytes
        try:
            limit = min(order.end_limit, replica.log.end_index)
            part = replica.log.read_range(start, limit, self._max_bytes)
        except CorruptLogError as error:
            replica.host.log_corrupt(replica, error)
            return None
        if part.data is None:
            return append_message(replica, order, [], part.row, part.end_index), 0
        return append_message(
            replica, order, [part.data.view()], part.row, part.end_index
        ), part.data.size_bytes

    def _kept_from(self, start_index: int) -> _Kept | None:
        """As much as a range may hold of what is kept from there on. None: it is not kept."""
        if self._kept and self._kept[-1].start_index == start_index:
            return self._kept[-1]
        found = [kept for kept in self._kept if kept.start_index >= start_index]
        if not found or found[0].start_index != start_index:
            return None
        buffers: list[Buffer] = []
        size_bytes, end_index = 0, start_index
        for kept in found:
            if buffers and size_bytes + kept.size_bytes > self._max_bytes:
                break
            buffers += kept.buffers
            size_bytes += kept.size_bytes
            end_index = kept.end_index
        return _Kept(start_index, end_index, buffers, size_bytes)
