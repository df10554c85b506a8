"""Client quotas: how much a client may produce, fetch and request on this node, and how long it is throttled above
that.

As in Kafka (KIP-13, KIP-124, KIP-219) a client may save what it does not use, up to `quota.window.num` - 1 windows of
`quota.window.size.seconds`, and use it at once. A client above its limit is answered at once. The answer names the
throttle time, and for so long its connection is not read. Each node applies a quota by itself.

For each kind of quota the first limit in this order is applied: user and client id; user and any client id; user; the
same three with any user; client id; any client id. Without authentication every user is called ANONYMOUS. All clients
of a user share a limit that names only the user. A limit for "any" client id applies to each client id by itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple

from broker.metadata.image import Change, QuotaChanged
from broker.metadata.quotas import (
    CLIENT_ID,
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    IP,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    USER,
)
from broker.metadata.records import Entity
from broker.scheduling.ticks import Ticks

ANONYMOUS = "ANONYMOUS"
#: The largest throttle time that an answer can name.
_MAX_THROTTLE_MS = 2**31 - 1
#: How often the meters of idle clients are dropped.
DROP_IDLE_S = 10.0
#: Clients whose limits are cached. A look-up without the cache costs eight times as much. More clients at a time are
#: not expected. A client id of up to 32 KB is not kept, but a hash of it.
_MAX_CACHED_LIMITS = 10_000
_MAX_KEPT_NAME = 256
#: Clients that are above what they may save. Further ones share a meter: names cost nothing, and each would be a meter.
_MAX_METERS = 20_000
_OTHERS = ("", "")
_KEYS = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE, CONNECTION_CREATION_RATE)


class Meter:
    """A token bucket, kept as its deficit: what a client has used and not saved again. It shrinks by the limit each
    second.

    (Kafka sums up windows instead. There a burst throttles its client until the whole window is over.)
    """

    __slots__ = ("_limit", "_now", "_used")

    def __init__(self) -> None:
        self._used = 0.0
        #: The time of that value (seconds), and the limit by which it shrinks.
        self._now = 0.0
        self._limit = 0.0

    def use(self, value: float, limit: float, saved_s: float, now: float) -> float:
        """Add `value` under a limit per second. Returns the seconds to wait until the deficit is no more than what can
        be saved in `saved_s`. A negative value takes back what was just added."""
        self._used = self._left(now) + value
        self._limit, self._now = limit, now
        return max(0.0, self._used / limit - saved_s)

    def is_idle(self, now: float) -> bool:
        """There is no deficit: the meter is as a new one."""
        return self._left(now) <= 0

    def _left(self, now: float) -> float:
        return max(0.0, self._used - self._limit * (now - self._now))


class _Limit(NamedTuple):
    """The limit of a client, and which clients share its meter: (user, client id), "" for all users or client ids."""

    value: float
    sharers: tuple[str, str]


@dataclass(slots=True)
class Throttled:
    """How often clients were throttled by a kind of quota, and for how long together."""

    count: int = 0
    total_ms: int = 0


class ClientQuotas:
    """The quotas of a node. The flags `limits_*` say whether a quota of a kind exists, so that a request without quotas
    costs no more than reading a flag."""

    def __init__(self, windows: int, window_s: float, now: Callable[[], float], ticks: Ticks) -> None:
        self._window_s = window_s
        #: A client can save what it does not use in so many seconds.
        self._saved_s = (windows - 1) * window_s
        self._now = now
        self._limits: dict[Entity, Mapping[str, float]] = {}
        #: Quota key -> number of entities that have a limit for it.
        self._count: Counter[str] = Counter()
        self._limit_cache: dict[tuple[str, str], _Limit | None] = {}
        #: (quota key, sharers) -> their meter.
        self._meters: dict[tuple[str, tuple[str, str]], Meter] = {}
        #: Quota key -> what it has cost clients, since the node was started.
        self.throttled = {key: Throttled() for key in _KEYS}
        self.limits_produce = self.limits_fetch = self.limits_requests = self.limits_connections = False
        ticks.every(DROP_IDLE_S, self.drop_idle_meters)

    def set_limits(self, entity: Entity, limits: Mapping[str, float]) -> None:
        """Set the limits of an entity. Empty: it has no quota any more."""
        self._count.subtract(self._limits.pop(entity, {}).keys())
        if limits:
            self._limits[entity] = limits
            self._count.update(limits.keys())
        self._limit_cache.clear()
        self.limits_produce = self._count[PRODUCER_BYTE_RATE] > 0
        self.limits_fetch = self._count[CONSUMER_BYTE_RATE] > 0
        self.limits_requests = self._count[REQUEST_PERCENTAGE] > 0
        self.limits_connections = self._count[CONNECTION_CREATION_RATE] > 0

    # -- what clients use --------------------------------------------------------------------------------

    def charge_produce(self, client_id: str, size_bytes: int) -> int:
        """Charge produced bytes to a client. Returns its throttle time in ms."""
        return self._count_throttle(
            PRODUCER_BYTE_RATE, self._charge_client(PRODUCER_BYTE_RATE, client_id, size_bytes)
        )

    def charge_fetch(self, client_id: str, size_bytes: int) -> int:
        """Charge an answer with this many bytes to a client. Returns 0, or the throttle time in ms after which it may
        ask again: then it gets no records, and nothing is charged.

        A client that has saved all it can gets even a batch that is larger than that, and is throttled afterwards.
        """
        limit = self._limit(CONSUMER_BYTE_RATE, client_id)
        if limit is None:
            return 0
        has_saved_all = self._meter(CONSUMER_BYTE_RATE, limit).is_idle(self._now())
        throttle_ms = self._charge(CONSUMER_BYTE_RATE, limit, size_bytes)
        if not throttle_ms or has_saved_all:
            return 0
        self._charge(CONSUMER_BYTE_RATE, limit, -size_bytes)
        return self._count_throttle(CONSUMER_BYTE_RATE, throttle_ms)

    def fetch_bound(self, client_id: str) -> int | None:
        """The most bytes that one answer to a client may have: what it can save. None: no quota."""
        limit = self._limit(CONSUMER_BYTE_RATE, client_id)
        return None if limit is None else int(limit.value * self._saved_s)

    def charge_request(self, client_id: str, worked_s: float) -> int:
        """Charge this node's working time to a client. Returns its throttle time in ms, one window at most."""
        throttle_ms = self._charge_client(REQUEST_PERCENTAGE, client_id, 100 * worked_s)
        return self._count_throttle(REQUEST_PERCENTAGE, min(throttle_ms, round(self._window_s * 1000)))

    def charge_connection(self, address: str) -> int:
        """Charge a new connection to its address. Returns 0 if it is accepted, or the ms until it is refused, one
        window at most: then nothing is charged."""
        if not self.limits_connections:
            return 0
        limits = self._limits.get(((IP, address),)) or self._limits.get(((IP, None),)) or {}
        if CONNECTION_CREATION_RATE not in limits:
            return 0
        limit = _Limit(limits[CONNECTION_CREATION_RATE], ("", address))
        throttle_ms = self._charge(CONNECTION_CREATION_RATE, limit, 1)
        if throttle_ms:
            self._charge(CONNECTION_CREATION_RATE, limit, -1)
        return self._count_throttle(CONNECTION_CREATION_RATE, min(throttle_ms, round(self._window_s * 1000)))

    def image_changed(self, change: Change) -> None:
        if isinstance(change, QuotaChanged):
            self.set_limits(change.entity, change.limits)

    def drop_idle_meters(self, now: float) -> None:
        """Drop the meters that have no deficit any more."""
        for key in [key for key, meter in self._meters.items() if meter.is_idle(now)]:
            del self._meters[key]

    # -- details -----------------------------------------------------------------------------------------

    def _count_throttle(self, key: str, throttle_ms: int) -> int:
        if throttle_ms:
            throttled = self.throttled[key]
            throttled.count += 1
            throttled.total_ms += throttle_ms
        return throttle_ms

    def _charge_client(self, key: str, client_id: str, value: float) -> int:
        limit = self._limit(key, client_id)
        return 0 if limit is None else self._charge(key, limit, value)

    def _charge(self, key: str, limit: _Limit, value: float) -> int:
        throttle_s = self._meter(key, limit).use(value, limit.value, self._saved_s, self._now())
        return min(round(throttle_s * 1000), _MAX_THROTTLE_MS)

    def _meter(self, key: str, limit: _Limit) -> Meter:
        meter = self._meters.get((key, limit.sharers))
        if meter is None:
            sharers = limit.sharers if len(self._meters) < _MAX_METERS else _OTHERS
            meter = self._meters.setdefault((key, sharers), Meter())
        return meter

    def _limit(self, key: str, client_id: str) -> _Limit | None:
        if not self._count[key]:
            return None
        if len(client_id) > _MAX_KEPT_NAME:
            return self._find(key, client_id)
        try:
            return self._limit_cache[key, client_id]
        except KeyError:
            if len(self._limit_cache) >= _MAX_CACHED_LIMITS:
                self._limit_cache.clear()
            found = self._limit_cache[key, client_id] = self._find(key, client_id)
            return found

    def _find(self, key: str, client_id: str) -> _Limit | None:
        for user in (ANONYMOUS, None):
            of_user: tuple[Entity, ...] = (
                ((CLIENT_ID, client_id), (USER, user)),
                ((CLIENT_ID, None), (USER, user)),
            )
            for entity in of_user:
                if key in (limits := self._limits.get(entity, {})):
                    return _Limit(limits[key], (ANONYMOUS, _kept(client_id)))
            if key in (limits := self._limits.get(((USER, user),), {})):
                return _Limit(limits[key], (ANONYMOUS, ""))
        for name in (client_id, None):
            if key in (limits := self._limits.get(((CLIENT_ID, name),), {})):
                return _Limit(limits[key], ("", _kept(client_id)))
        return None


def _kept(client_id: str) -> str:
    """What a meter is kept under."""
    if len(client_id) <= _MAX_KEPT_NAME:
        return client_id
    return blake2b(client_id.encode(errors="surrogatepass")).hexdigest()
