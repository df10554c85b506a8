"""Client quotas at work: how much a client may write, read and ask for on this node, and how long it waits beyond that.

As in Kafka (KIP-13, KIP-124, KIP-219) a client may save what it does not use, up to `quota.window.num` - 1 windows of
`quota.window.size.seconds`, and use it at once. Who is above its limit is answered at once, is told in the answer how
long it has to wait, and for so long no more is read from its connection. A quota counts for each node by itself.

Which limit counts, for each kind by itself: that of user and client id, user and any client id, the user; the same for
any user; the client id, any client id. Without authentication every user is called ANONYMOUS. Clients share a
limit that names only their user; a limit for "any" client id is each client id's own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
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
#: The largest that an answer can say.
_MAX_THROTTLE_MS = 2**31 - 1
#: How often what idle clients have used is forgotten.
FORGET_IDLE_S = 10.0
#: Clients whose limits are remembered: a look-up is eight times as dear, and nobody has so many clients at a time.
_MAX_FOUND = 10_000


class Meter:
    """What somebody has used and not yet saved again. It shrinks by the limit with every second.

    (Kafka adds up windows. There, what was used at once keeps its user waiting until its whole window is gone.)
    """

    __slots__ = ("_limit", "_now", "_used")

    def __init__(self) -> None:
        self._used = 0.0
        #: When that was so, and by which limit it shrinks.
        self._now = 0.0
        self._limit = 0.0

    def use(self, value: float, limit: float, saved_s: float, now: float) -> float:
        """Use so much under a limit per second. Returns the seconds to wait until no more than what can be saved in
        `saved_s` is missing. A negative value takes back what was used just now."""
        self._used = self._left(now) + value
        self._limit, self._now = limit, now
        return max(0.0, self._used / limit - saved_s)

    def is_idle(self, now: float) -> bool:
        """As good as new."""
        return self._left(now) <= 0

    def _left(self, now: float) -> float:
        return max(0.0, self._used - self._limit * (now - self._now))


class _Limit(NamedTuple):
    """What counts for a client, and whose measure it is: (user, client id), "" where all of them share it."""

    value: float
    sharers: tuple[str, str]


class ClientQuotas:
    """The flags say whether any quota of a kind exists: without one, a request costs one look at a flag."""

    def __init__(self, windows: int, window_s: float, now: Callable[[], float], ticks: Ticks) -> None:
        self._window_s = window_s
        #: Seconds in which a client can save.
        self._saved_s = (windows - 1) * window_s
        self._now = now
        self._limits: dict[Entity, Mapping[str, float]] = {}
        #: Key -> entities that limit it.
        self._count: Counter[str] = Counter()
        self._found: dict[tuple[str, str], _Limit | None] = {}
        #: (key, sharers) -> what they have used.
        self._meters: dict[tuple[str, tuple[str, str]], Meter] = {}
        self.limits_produce = self.limits_fetch = self.limits_requests = self.limits_connections = False
        ticks.every(FORGET_IDLE_S, self.forget_idle)

    def change(self, entity: Entity, limits: Mapping[str, float]) -> None:
        """These are the entity's limits now; none: it has no quota."""
        self._count.subtract(self._limits.pop(entity, {}).keys())
        if limits:
            self._limits[entity] = limits
            self._count.update(limits.keys())
        self._found.clear()
        self.limits_produce = self._count[PRODUCER_BYTE_RATE] > 0
        self.limits_fetch = self._count[CONSUMER_BYTE_RATE] > 0
        self.limits_requests = self._count[REQUEST_PERCENTAGE] > 0
        self.limits_connections = self._count[CONNECTION_CREATION_RATE] > 0

    # -- what clients use --------------------------------------------------------------------------------

    def produced(self, client_id: str, size_bytes: int) -> int:
        """Milliseconds to wait, now that a client has written so much."""
        return self._used(PRODUCER_BYTE_RATE, client_id, size_bytes)

    def fetched(self, client_id: str, size_bytes: int) -> int:
        """Milliseconds to wait if a client were given so much. If it has to wait it is given nothing, and nothing
        counts. Who has saved all it can is given even a batch that is larger than that, and pays for it afterwards."""
        limit = self._limit(CONSUMER_BYTE_RATE, client_id)
        if limit is None:
            return 0
        meter = self._meters.get((CONSUMER_BYTE_RATE, limit.sharers))
        has_saved_all = meter is None or meter.is_idle(self._now())
        throttle_ms = self._use(CONSUMER_BYTE_RATE, limit, size_bytes)
        if not throttle_ms or has_saved_all:
            return 0
        self._use(CONSUMER_BYTE_RATE, limit, -size_bytes)
        return throttle_ms

    def fetch_bound(self, client_id: str) -> int | None:
        """The most that a client can be given at once: what it can save. More would never be given."""
        limit = self._limit(CONSUMER_BYTE_RATE, client_id)
        return None if limit is None else int(limit.value * self._saved_s)

    def requested(self, client_id: str, worked_s: float) -> int:
        """Milliseconds to wait, now that a client has had so much of this node's time: one window at the most."""
        throttle_ms = self._used(REQUEST_PERCENTAGE, client_id, 100 * worked_s)
        return min(throttle_ms, round(self._window_s * 1000))

    def connected(self, address: str) -> int:
        """Milliseconds that a new connection is held before it is refused, one window at the most; 0: it is taken."""
        if not self.limits_connections:
            return 0
        limits = self._limits.get(((IP, address),)) or self._limits.get(((IP, None),)) or {}
        if CONNECTION_CREATION_RATE not in limits:
            return 0
        limit = _Limit(limits[CONNECTION_CREATION_RATE], ("", address))
        throttle_ms = self._use(CONNECTION_CREATION_RATE, limit, 1)
        if throttle_ms:
            self._use(CONNECTION_CREATION_RATE, limit, -1)
        return min(throttle_ms, round(self._window_s * 1000))

    def image_changed(self, change: Change) -> None:
        if isinstance(change, QuotaChanged):
            self.change(change.entity, change.limits)

    def forget_idle(self, now: float) -> None:
        """Forget whoever has saved again what it had used."""
        for key in [key for key, meter in self._meters.items() if meter.is_idle(now)]:
            del self._meters[key]

    # -- details -----------------------------------------------------------------------------------------

    def _used(self, key: str, client_id: str, value: float) -> int:
        limit = self._limit(key, client_id)
        return 0 if limit is None else self._use(key, limit, value)

    def _use(self, key: str, limit: _Limit, value: float) -> int:
        meter = self._meters.get((key, limit.sharers))
        if meter is None:
            meter = self._meters[key, limit.sharers] = Meter()
        throttle_s = meter.use(value, limit.value, self._saved_s, self._now())
        return min(round(throttle_s * 1000), _MAX_THROTTLE_MS)

    def _limit(self, key: str, client_id: str) -> _Limit | None:
        if not self._count[key]:
            return None
        try:
            return self._found[key, client_id]
        except KeyError:
            if len(self._found) >= _MAX_FOUND:
                self._found.clear()
            found = self._found[key, client_id] = self._find(key, client_id)
            return found

    def _find(self, key: str, client_id: str) -> _Limit | None:
        for user in (ANONYMOUS, None):
            of_user: tuple[Entity, ...] = (
                ((CLIENT_ID, client_id), (USER, user)),
                ((CLIENT_ID, None), (USER, user)),
            )
            for entity in of_user:
                if key in (limits := self._limits.get(entity, {})):
                    return _Limit(limits[key], (ANONYMOUS, client_id))
            if key in (limits := self._limits.get(((USER, user),), {})):
                return _Limit(limits[key], (ANONYMOUS, ""))
        for name in (client_id, None):
            if key in (limits := self._limits.get(((CLIENT_ID, name),), {})):
                return _Limit(limits[key], ("", client_id))
        return None
