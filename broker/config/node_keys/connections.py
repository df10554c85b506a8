"""Connections and requests: limits of clients, and for how long state of clients is kept."""

from __future__ import annotations

from dataclasses import dataclass

from broker.config.values import boolean, integer, long, setting

_HOUR_MS = 3_600_000


@dataclass(frozen=True, kw_only=True)
class ConnectionKeys:
    socket_request_max_bytes: int = setting(
        "socket.request.max.bytes",
        integer(1024),
        str(100 << 20),
        "The largest request. A larger one closes the connection.",
    )
    max_connections: int = setting(
        "max.connections",
        integer(1),
        "5000",
        """How many connections clients may have open. Further ones are closed at once. Half of the files that the
        process may open is a limit, too. (Kafka: 2147483647.)""",
        dynamic=True,
    )
    max_connections_per_ip: int = setting(
        "max.connections.per.ip",
        integer(1),
        "2147483647",
        "How many connections one client address may have open.",
        dynamic=True,
    )
    connections_max_idle_ms: int = setting(
        "connections.max.idle.ms",
        long(1),
        "600000",
        "A client connection without a request for this long is closed.",
    )
    produce_validate_records: bool = setting(
        "varve.produce.validate.records",
        boolean,
        "true",
        """Whether the records of each produced batch are looked at before it is accepted, decompressed if necessary. If
        not, a producer with a defect can store what stops the consumers of a partition for good: only the header and
        the checksum of a batch are checked, and the rules of the topic about keys and timestamps.""",
        dynamic=True,
    )
    fetch_max_bytes: int = setting(
        "fetch.max.bytes",
        integer(1024),
        str(55 << 20),
        "The most bytes in one fetch response, whatever the client asks for.",
    )
    fetch_session_slots: int = setting(
        "max.incremental.fetch.session.cache.slots",
        integer(0),
        "1000",
        "How many incremental fetch sessions this node keeps (KIP-227).",
    )
    max_fetch_partitions: int = setting(
        "varve.max.fetch.partitions",
        integer(1),
        "20000",
        """How many partitions the fetch sessions of this node may name together, and how many the fetches without a
        session that wait for records. A client that finds no room for a session goes on without one. One that finds no
        room to wait is answered at once and throttled. (Kafka has no such bound.)""",
    )
    queued_max_request_bytes: int = setting(
        "queued.max.request.bytes",
        long(-1),
        str(64 << 20),
        """How much memory requests of clients may take: half of it those that are still being received, half of it
        those that are not answered. So no request can be larger than half of it. Further requests wait, and if those
        that are being received take too much, the connections are closed whose requests come most slowly. -1: no
        bound. (Kafka: -1.)""",
    )
    queued_max_response_bytes: int = setting(
        "varve.queued.max.response.bytes",
        long(1 << 20),
        str(32 << 20),
        """How many bytes of responses this node holds that clients have not read. A fetch is answered with at most half
        of what is left of it. Above it, clients that have read nothing for ten seconds are disconnected, and sooner the
        further it is above.""",
    )
    producer_id_expiration_ms: int = setting(
        "producer.id.expiration.ms",
        integer(1),
        str(24 * _HOUR_MS),
        "The state of an idempotent producer that has not written for this long is dropped.",
        dynamic=True,
    )
    max_producer_ids: int = setting(
        "varve.max.producer.ids",
        integer(1),
        "15000",
        """How many producer ids this node remembers, of all its partitions together. Above it, those that have written
        nothing for longest are dropped, as if they had expired. Such a producer is answered UNKNOWN_PRODUCER_ID when it
        writes again. (Kafka has no such bound.)""",
    )
    quota_window_num: int = setting(
        "quota.window.num",
        integer(2),
        "11",
        "Over how many windows a client's rate is measured. A client may use at once what it has not used in them.",
    )
    quota_window_size_s: int = setting(
        "quota.window.size.seconds",
        integer(1),
        "1",
        "The length of such a window.",
    )
