"""How much memory answers may take that clients have not read (varve.queued.max.response.bytes), and which clients are
disconnected because they read nothing."""

from __future__ import annotations

from typing import Protocol

import structlog

log = structlog.get_logger()

#: A fetch may always be answered with this many bytes, or with one batch, however large.
SMALL_ANSWER_BYTES = 64 * 1024
#: While unread answers are above their limit, a client that reads nothing for this long is disconnected. The further
#: they are above it, the less time it has: at twice the limit none.
STALLED_AFTER_S = 10.0


class Reader(Protocol):
    """A client's connection, as far as it reads answers."""

    peer: str

    @property
    def unread_bytes(self) -> int:
        """Bytes of answers that the client has not read."""

    def abort(self) -> None: ...


class AnswerMemory:
    """Of one node."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        #: Bytes of answers that clients have not read: in all, and by connection. Invariant: the first is the sum.
        self._unread_bytes = 0
        self._unread: dict[Reader, int] = {}
        #: While that is above the limit: the bytes that each client had not read at the last tick, and the loop time
        #: since when they have not become fewer.
        self._stalled: dict[Reader, tuple[int, float]] = {}

    def record_unread(self, reader: Reader, size_bytes: int) -> None:
        self._unread_bytes += size_bytes - self._unread.pop(reader, 0)
        if size_bytes:
            self._unread[reader] = size_bytes

    @property
    def answer_bytes(self) -> int:
        """The most bytes that one fetch may be answered with now: half of what is left, so that several clients find
        room. Clients that do not read their answers make it small for everybody; not serving requests at all would stop
        the clients that do read."""
        return max((self._limit_bytes - self._unread_bytes) // 2, SMALL_ANSWER_BYTES)

    def remove(self, reader: Reader) -> None:
        self._stalled.pop(reader, None)
        self.record_unread(reader, 0)

    def close_stalled(self, now: float) -> None:
        """Called at short intervals: disconnect the clients that have read nothing for too long."""
        if self._unread_bytes > self._limit_bytes:
            for reader in self._unread:
                self._unread[reader] = reader.unread_bytes
            self._unread_bytes = sum(self._unread.values())
        if self._unread_bytes <= self._limit_bytes:
            self._stalled.clear()
            return
        patience_s = STALLED_AFTER_S * max(0.0, 2 - self._unread_bytes / self._limit_bytes)
        stalled: dict[Reader, tuple[int, float]] = {}
        for reader, size_bytes in list(self._unread.items()):
            before = self._stalled.get(reader)
            if before is None or size_bytes < before[0]:
                stalled[reader] = (size_bytes, now)
            elif now - before[1] < patience_s:
                stalled[reader] = (size_bytes, before[1])
            else:
                log.warning(
                    "connection closed: answers are not read",
                    peer=reader.peer,
                    size_bytes=size_bytes,
                    cause=reader.peer.rpartition(":")[0],
                )
                reader.abort()
        self._stalled = stalled
