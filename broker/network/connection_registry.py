"""All client connections of a node: how many there may be, the memory that they may use together, and which of them are
closed because they are idle."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

import structlog

from broker.config.descriptors import connections_of
from broker.config.layers import LiveSettings
from broker.log_limit import kind_of
from broker.network import request_memory
from broker.network.answer_memory import AnswerMemory, Reader
from broker.network.client_traffic import ClientTraffic
from broker.network.listener_hint import ListenerHint
from broker.network.request_memory import Receiver, RequestMemory
from broker.scheduling.ticks import SLOW_TICK_S, Ticks
from protocol.errors import ProtocolError

log = structlog.get_logger()

_RATE_USED_UP = "connection_creation_rate of its address is used up"


class Connection(Receiver, Reader, Protocol):
    """What the registry needs of a client's connection."""

    #: The client's address without its port.
    host: str
    #: That of this node to which the client has connected, and the listener there.
    own_host: str
    listener: str
    #: Loop time at which the last bytes came from the client.
    last_active_s: float

    @property
    def is_idle(self) -> bool:
        """No request is unanswered."""

    def mute(self, throttle_ms: int) -> None:
        """Serve no request for so long."""

    def close(self) -> None: ...


class ConnectionRegistry:
    """The open client connections of a node. It keeps the limits on their number, and closes them: idle ones, and all
    of them at the end."""

    def __init__(
        self, settings: LiveSettings, ticks: Ticks, throttle_of: Callable[[str], int] = lambda address: 0
    ) -> None:
        """`throttle_of`: for the address of a new connection, milliseconds after which it is refused; 0 if it is
        accepted."""
        self._settings = settings
        config = settings.config
        self._idle_ms = config.connections_max_idle_ms
        self.memory = RequestMemory(config.queued_max_request_bytes)
        self.answers = AnswerMemory(config.queued_max_response_bytes)
        self._throttle_of = throttle_of
        self.traffic = ClientTraffic()
        self._hint = ListenerHint(config)
        #: The open connections, the oldest first, by number.
        self._open: dict[Connection, int] = {}
        self._per_ip: dict[str, int] = {}
        ticks.every(SLOW_TICK_S, self.close_idle)
        ticks.every(SLOW_TICK_S, self.answers.close_stalled)
        ticks.every(SLOW_TICK_S, self.memory.retry)
        ticks.every(request_memory.TICK_S, self.memory.tick)

    def __len__(self) -> int:
        return len(self._open)

    def admit(self, connection: Connection) -> None:
        """Register a new connection. If it is one too many, it is closed."""
        refusal = self._refusal(connection.host)
        self.traffic.accepted_count += 1
        self._open[connection] = self.traffic.accepted_count
        self._per_ip[connection.host] = self._per_ip.get(connection.host, 0) + 1
        if refusal is not None:
            self.traffic.refused_count += 1
            self._log_refusal(connection, refusal)
            connection.abort()
        elif throttle_ms := self._throttle_of(connection.host):
            # The connection is closed later and not read until then: a client that is refused at once connects again at
            # once.
            self._log_refusal(connection, _RATE_USED_UP)
            connection.mute(throttle_ms)
            asyncio.get_running_loop().call_later(throttle_ms / 1000, connection.abort)
        else:
            self._hint.connected(connection.listener, connection.host, connection.own_host)

    @staticmethod
    def log_bad_request(connection: Connection, error: ProtocolError) -> None:
        """It is closed for what its client has sent."""
        reason = str(error)
        cause = connection.host, kind_of(reason)
        log.warning("connection closed: bad request", peer=connection.peer, reason=reason, cause=cause)

    @staticmethod
    def _log_refusal(connection: Connection, reason: str) -> None:
        log.warning(
            "connection refused", peer=connection.peer, reason=reason, cause=(connection.host, reason)
        )

    def _refusal(self, ip: str) -> str | None:
        """Why a new connection has to be closed at once, if it has to."""
        config = self._settings.config
        most = min(config.max_connections, connections_of(config.descriptor_limit))
        if len(self._open) >= most:
            is_setting = most == config.max_connections
            return f"{'max.connections' if is_setting else 'half of the open files limit'} ({most}) reached"
        if self._per_ip.get(ip, 0) >= config.max_connections_per_ip:
            return "max.connections.per.ip reached"
        return None

    def number_of(self, connection: Connection) -> int:
        """From 1 on, in the order in which this node has accepted its connections. 0: it is closed."""
        return self._open.get(connection, 0)

    def remove(self, connection: Connection) -> None:
        self.answers.remove(connection)
        if self._open.pop(connection, None) is not None:
            left = self._per_ip[connection.host] - 1
            if left:
                self._per_ip[connection.host] = left
            else:
                del self._per_ip[connection.host]

    def close_idle(self, now_s: float) -> None:
        """Close connections without a request for connections.max.idle.ms. One that waits for an answer is not idle."""
        limit_s = now_s - self._idle_ms / 1000
        for connection in list(self._open):
            if connection.last_active_s < limit_s and connection.is_idle:
                connection.close()

    def close_all(self) -> None:
        for connection in list(self._open):
            connection.close()
