"""All client connections of a node: what they may hold together, and which are closed: idle, or taking no answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import structlog

from broker.config.layers import LiveSettings
from broker.scheduling.ticks import SLOW_TICK_S, Ticks

log = structlog.get_logger()

#: Where too much waits to be taken by clients: what a fetch gets then (or one batch, however large), and how long a
#: client may take nothing.
SCANT_ANSWER_BYTES = 64 * 1024
TAKES_NOTHING_S = 10.0


class Connection(Protocol):
    """What the registry asks of a client's connection."""

    peer: str
    #: Loop time of the last bytes that came.
    last_active_s: float

    @property
    def is_idle(self) -> bool:
        """Nothing is unanswered."""

    @property
    def untaken_bytes(self) -> int:
        """Bytes of answers that wait for the client to take them."""

    def resume_reading(self) -> None: ...
    def close(self) -> None: ...
    def abort(self) -> None: ...


class ConnectionRegistry:
    """The open client connections of a node: limits per address, idle ones, and the list to close at the end."""

    def __init__(
        self, settings: LiveSettings, ticks: Ticks, throttle_of: Callable[[str], int] = lambda address: 0
    ) -> None:
        """`throttle_of`: of an address that has just connected, milliseconds until it is refused, 0 where it is not."""
        self._settings = settings
        config = settings.config
        self._idle_ms = config.connections_max_idle_ms
        #: queued.max.request.bytes; negative: no bound.
        self._max_unanswered_bytes = config.queued_max_request_bytes
        #: Bytes of all requests that are not answered yet.
        self.unanswered_bytes = 0
        #: varve.queued.max.response.bytes.
        self._max_untaken_bytes = config.queued_max_response_bytes
        #: Bytes of answers that clients have not taken, in all and per connection that has some.
        self._untaken_bytes = 0
        self._untaken: dict[Connection, int] = {}
        #: While that is too much: what each had left at the last look, and since when (loop time) not less.
        self._stuck: dict[Connection, tuple[int, float]] = {}
        self.throttle_of = throttle_of
        #: Connections that are not read until there is room again.
        self._waiting: dict[Connection, None] = {}
        #: Insertion-ordered set of open connections.
        self._open: dict[Connection, str] = {}
        self._per_ip: dict[str, int] = {}
        ticks.every(SLOW_TICK_S, self._tick)

    def _tick(self, now: float) -> None:
        self.close_idle(now)
        self.close_unread(now)

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

    def answered(self, size_bytes: int) -> None:
        """A request is answered, or its client is gone."""
        self.unanswered_bytes -= size_bytes
        if self._waiting and not self.is_over_budget:
            waiting, self._waiting = self._waiting, {}
            for connection in waiting:
                connection.resume_reading()

    def note_untaken(self, connection: Connection, size_bytes: int) -> None:
        self._untaken_bytes += size_bytes - self._untaken.pop(connection, 0)
        if size_bytes:
            self._untaken[connection] = size_bytes

    @property
    def answer_bytes(self) -> int:
        """The most that one answer may bring now. Refusing to read would stop everybody for those who take nothing."""
        return (1 << 31) if self._untaken_bytes <= self._max_untaken_bytes else SCANT_ANSWER_BYTES

    def close_unread(self, now_s: float) -> None:
        """While too much waits, close connections whose clients have taken nothing for long."""
        if self._untaken_bytes > self._max_untaken_bytes:
            for connection in self._untaken:
                self._untaken[connection] = connection.untaken_bytes
            self._untaken_bytes = sum(self._untaken.values())
        if self._untaken_bytes <= self._max_untaken_bytes:
            self._stuck.clear()
            return
        stuck: dict[Connection, tuple[int, float]] = {}
        for connection, size_bytes in list(self._untaken.items()):
            before = self._stuck.get(connection)
            if before is None or size_bytes < before[0]:
                stuck[connection] = (size_bytes, now_s)
            elif now_s - before[1] < TAKES_NOTHING_S:
                stuck[connection] = (size_bytes, before[1])
            else:
                log.warning(
                    "connection closed: answers are not taken", peer=connection.peer, size_bytes=size_bytes
                )
                connection.abort()
        self._stuck = stuck

    def remove(self, connection: Connection) -> None:
        self._waiting.pop(connection, None)
        self._stuck.pop(connection, None)
        self.note_untaken(connection, 0)
        ip = self._open.pop(connection, None)
        if ip is not None:
            left = self._per_ip[ip] - 1
            if left:
                self._per_ip[ip] = left
            else:
                del self._per_ip[ip]

    def close_idle(self, now_s: float) -> None:
        """connections.max.idle.ms: a connection that waits for an answer of ours is not idle."""
        limit_s = now_s - self._idle_ms / 1000
        for connection in list(self._open):
            if connection.last_active_s < limit_s and connection.is_idle:
                connection.close()

    def close_all(self) -> None:
        for connection in list(self._open):
            connection.close()
