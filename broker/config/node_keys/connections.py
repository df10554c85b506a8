"""Connections and requests: what clients may use, and what is remembered of them."""

from __future__ import annotations

from dataclasses import dataclass

from broker.config.values import integer, long, setting

_HOUR_MS = 3_600_000


@dataclass(frozen=True, kw_only=True)
class ConnectionKeys:
    socket_request_max_bytes: int = setting(
        "socket.request.max.bytes",
        integer(1024),
        str(100 << 20),
        "Largest request; a larger one closes the connection.",
    )
    max_connections_per_ip: int = setting(
        "max.connections.per.ip",
        integer(1),
        "2147483647",
        "Connections that one client address may hold open.",
        dynamic=True,
    )
    connections_max_idle_ms: int = setting(
        "connections.max.idle.ms",
        long(1),
        "600000",
        "A client connection without a request for so long is closed.",
    )
    fetch_max_bytes: int = setting(
        "fetch.max.bytes",
        integer(1024),
        str(55 << 20),
        "Most bytes in one answer to a fetch, whatever the client asks for.",
    )
    max_incremental_fetch_session_cache_slots: int = setting(
        "max.incremental.fetch.session.cache.slots",
        integer(0),
        "1000",
        "How many consumers may have this node remember what they fetch, so that they name only changes (KIP-227).",
    )
    queued_max_request_bytes: int = setting(
        "queued.max.request.bytes",
        long(-1),
        "-1",
        "Bytes of requests that may wait unanswered in this node before it stops reading; -1 is no bound.",
    )
    queued_max_response_bytes: int = setting(
        "varve.queued.max.response.bytes",
        long(1 << 20),
        str(256 << 20),
        """Bytes of answers that clients have not taken yet at which answers to fetches become small, and clients that
        take nothing for ten seconds are disconnected.""",
    )
    producer_id_expiration_ms: int = setting(
        "producer.id.expiration.ms",
        integer(1),
        str(24 * _HOUR_MS),
        "An idempotent producer that has not written for so long is forgotten.",
        dynamic=True,
    )
    quota_window_num: int = setting(
        "quota.window.num",
        integer(2),
        "11",
        "Windows over which a client's rate is measured: what it saved in them it may use at once.",
    )
    quota_window_size_s: int = setting(
        "quota.window.size.seconds",
        integer(1),
        "1",
        "Length of such a window.",
    )
