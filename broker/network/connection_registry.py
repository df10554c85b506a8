"""All client connections of a node: the memory that they may use together, and which of them are closed because they
are idle or do not read their answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import structlog

from broker.config.layers import LiveSettings
from broker.scheduling.ticks import SLOW_TICK_S, Ticks

log = structlog.get_logger()

#: Above varve.queued.max.response.bytes of unread answers, a fetch gets this many bytes (or one batch, however large).
SMALL_ANSWER_BYTES = 64 * 1024
#: ... and a client that reads nothing for this long is disconnected.
STALLED_AFTER_S = 10.0


class Connection(Protocol):
    """What the registry needs of a client's connection."""

    peer: str
    #: Loop time at which the last bytes came from the client.
    last_active_s: float

    @property
    def is_idle(self) -> bool:
        """No request is unanswered."""

    @property
    def unread_bytes(self) -> int:
        """Bytes of answers that the client has not read."""

    def resume_reading(self) -> None: ...
    def close(self) -> None: ...
    def abort(self) -> None: ...


class ConnectionRegistry:
    """The open client connections of a node. It keeps the limits per address and the memory bounds, and closes the
    connections: idle and stalled ones, and all of them at the end."""

    def __init__(
        self, settings: LiveSettings, ticks: Ticks, throttle_of: Callable[[str], int] = lambda address: 0
    ) -> None:
        """`throttle_of`: for the address of a new connection, milliseconds after which it is refused; 0 if it is
        accepted."""
        self._settings = settings
        config = settings.config
        self._idle_ms = config.connections_max_idle_ms
        #: queued.max.request.bytes; negative: no bound.
        self._max_unanswered_bytes = config.queued_max_request_bytes
        #: Bytes of all requests that are not answered.
        self.unanswered_bytes = 0
        #: varve.queued.max.response.bytes.
        self._max_unread_bytes = config.queued_max_response_bytes
        #: Bytes of answers that clients have not read: in all, and by connection. Invariant: the first is the sum.
        self._unread_bytes = 0
        self._unread: dict[Connection, int] = {}
        #: While that is above the limit: the bytes that each client had not read at the last tick, and the loop time
        #: since when they have not become fewer.
        self._stalled: dict[Connection, tuple[int, float]] = {}
        self.throttle_of = throttle_of
        #: Connections that are not read until `unanswered_bytes` is within its bound again.
        self._waiting: dict[Connection, None] = {}
        #: Insertion-ordered set of open connections.
        self._open: dict[Connection, str] = {}
        self._per_ip: dict[str, int] = {}
        ticks.every(SLOW_TICK_S, self._tick)

    def _tick(self, now: float) -> None:
        self.close_idle(now)
        self.close_stalled(now)

    def __len__(self) -> int:
        return len(self._open)

    def admit(self, connection: Connection, ip: str) -> bool:
        count = self._per_ip.get(ip, 0)
        self._open[connection] = ip
        self._per_ip[ip] = count + 1
        return count < self._settings.config.max_connections_per_ip

    @property
    def is_over_budget(self) -> bool:
        return 0 <= self._max_unanswered_bytes < self.unanswered_bytes

    def wait_for_budget(self, connection: Connection) -> None:
        self._waiting[connection] = None

    def release_budget(self, size_bytes: int) -> None:
        """A request of this size is answered, or its client is disconnected."""
        self.unanswered_bytes -= size_bytes
        if self._waiting and not self.is_over_budget:
            waiting, self._waiting = self._waiting, {}
            for connection in waiting:
                connection.resume_reading()

    def record_unread(self, connection: Connection, size_bytes: int) -> None:
        self._unread_bytes += size_bytes - self._unread.pop(connection, 0)
        if size_bytes:
            self._unread[connection] = size_bytes

    @property
    def answer_bytes(self) -> int:
        """The most bytes that one fetch may be answered with now. Clients that do not read their answers make it small
        for everybody; not serving requests at all would stop the clients that do read."""
        return (1 << 31) if self._unread_bytes <= self._max_unread_bytes else SMALL_ANSWER_BYTES

    def close_stalled(self, now_s: float) -> None:
        """While unread answers are above their limit, close the connections of clients that have read nothing for
        STALLED_AFTER_S."""
        if self._unread_bytes > self._max_unread_bytes:
            for connection in self._unread:
                self._unread[connection] = connection.unread_bytes
            self._unread_bytes = sum(self._unread.values())
        if self._unread_bytes <= self._max_unread_bytes:
            self._stalled.clear()
            return
        stalled: dict[Connection, tuple[int, float]] = {}
        for connection, size_bytes in list(self._unread.items()):
            before = self._stalled.get(connection)
            if before is None or size_bytes < before[0]:
                stalled[connection] = (size_bytes, now_s)
            elif now_s - before[1] < STALLED_AFTER_S:
                stalled[connection] = (size_bytes, before[1])
            else:
                log.warning(
                    "connection closed: answers are not read", peer=connection.peer, size_bytes=size_bytes
                )
                connection.abort()
        self._stalled = stalled

    def remove(self, connection: Connection) -> None:
        self._waiting.pop(connection, None)
        self._stalled.pop(connection, None)
        self.record_unread(connection, 0)
        ip = self._open.pop(connection, None)
        if ip is not None:
            left = self._per_ip[ip] - 1
            if left:
                self._per_ip[ip] = left
            else:
                del self._per_ip[ip]

    def close_idle(self, now_s: float) -> None:
        """Close connections without a request for connections.max.idle.ms. One that waits for an answer is not idle."""
        limit_s = now_s - self._idle_ms / 1000
        for connection in list(self._open):
            if connection.last_active_s < limit_s and connection.is_idle:
                connection.close()

    def close_all(self) -> None:
        for connection in list(self._open):
            connection.close()
