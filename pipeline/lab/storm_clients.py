"""The clients of the retry storm: many producers in one process, each sending at a steady rate by one policy."""

from __future__ import annotations

import heapq
import signal
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing.synchronize import Event
from random import Random

from pipeline.producer import (
    BreakerSettings,
    Failure,
    FullJitterBackoff,
    NotSentError,
    Outcome,
    ReliableProducer,
    RetryPolicy,
    ThrottleSettings,
)

#: One attempt. All policies have the same, so that they differ in nothing but when they send again.
ATTEMPT_TIMEOUT_MS = 1_000
#: All attempts of a record together.
BOUND_MS = 30_000
_VALUE = b"." * 1_000
_NO_LIMIT = 1_000


class ExponentialBackoff(FullJitterBackoff):
    """The ceiling itself, without jitter: clients that failed together come back together."""

    def delay_s(self, attempts: int, rng: Random) -> float:
        return self.ceiling_s(attempts)


@dataclass(frozen=True, slots=True)
class Policy:
    backoff: FullJitterBackoff
    breaker: BreakerSettings | None = None
    throttle: ThrottleSettings | None = None


# As long as an attempt, so that the first retry is not upon the broker before the others have failed.
_BASE_S, _CAP_S = 1.0, 10.0
_JITTER = FullJitterBackoff(floor_s=0.05, base_s=_BASE_S, cap_s=_CAP_S)
# For clients of a few records a second: three failures within two seconds open it, and it takes ten seconds to come
# back to all that it had, as what failed meanwhile is sent on top of what is new.
_BREAKER = BreakerSettings(
    threshold=3,
    ratio=0.5,
    window_s=2.0,
    open_s=2.0,
    probes=1,
    ramp_s=10.0,
    ramp_initial_per_s=1.0,
    ramp_doubling_s=4.0,
)
POLICIES: dict[str, Policy] = {
    "immediate": Policy(FullJitterBackoff(0.0, 0.0, 0.0)),
    "exponential": Policy(ExponentialBackoff(0.0, _BASE_S, _CAP_S)),
    "full jitter": Policy(_JITTER),
    "jitter and breaker": Policy(_JITTER, breaker=_BREAKER),
    "jitter and throttle": Policy(_JITTER, throttle=ThrottleSettings(multiplier=2.0, window_s=5.0)),
}


@dataclass(frozen=True, slots=True)
class Clients:
    bootstrap_server: str
    topic: str
    policy: str
    numbers: Sequence[int]
    """Of these clients among all."""
    of_all: int
    rate_per_s: float
    """Of each client."""
    begin_at_s: float
    """Monotonic time, which all processes of a machine share."""


@dataclass(frozen=True, slots=True)
class Fate:
    """What became of a record."""

    due_at_s: float
    latency_s: float | None
    """None: it was not acknowledged."""
    is_shed: bool = False
    """The producer did not take it: the breaker was open, or the throttle dropped it."""


_ends: Event | None = None
_gives_up: Event | None = None


def prepare(ends: Event, gives_up: Event) -> None:
    """Of each process, before its clients run. `ends`: they send no more; `gives_up`: nor do they wait for outcomes."""
    global _ends, _gives_up
    _ends, _gives_up = ends, gives_up
    # Ctrl-C reaches all processes of a terminal; the first of them is told, and tells the others.
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def run_clients(clients: Clients) -> list[Fate]:
    """Send until that has an end, and wait for the outcome of each record. In a process that was prepared."""
    assert _ends is not None and _gives_up is not None, "prepare was called"
    fates: list[Fate] = []
    lock = threading.Lock()

    def reported(due_at_s: float, outcome: Outcome) -> None:
        latency_s = None if isinstance(outcome, Failure) else time.monotonic() - due_at_s
        with lock:
            fates.append(Fate(due_at_s, latency_s))

    producers = {number: _producer(clients, number) for number in clients.numbers}
    for producer in producers.values():
        producer.partition_count(clients.topic)
    interval_s = 1 / clients.rate_per_s
    # Spread over one interval, so that together they are a steady load.
    turns = [(clients.begin_at_s + interval_s * number / clients.of_all, number) for number in producers]
    heapq.heapify(turns)
    while True:
        due_at_s, number = heapq.heappop(turns)
        if _ends.wait(max(0.0, due_at_s - time.monotonic())):
            break
        try:
            producers[number].send(
                clients.topic, _VALUE, partition=0, on_delivery=partial(reported, due_at_s), timeout_s=0
            )
        except NotSentError:
            with lock:
                fates.append(Fate(due_at_s, None, is_shed=True))
        heapq.heappush(turns, (due_at_s + interval_s, number))
    for producer in producers.values():
        # What it has will have an outcome within the bound.
        producer.close(0.0 if _gives_up.is_set() else None)
    return fates


def _producer(clients: Clients, number: int) -> ReliableProducer:
    policy = POLICIES[clients.policy]
    settings = {
        "bootstrap.servers": clients.bootstrap_server,
        "log_level": 0,
        # One request for each attempt, and no attempt but those of the policy.
        "enable.idempotence": False,
        "retries": 0,
        "batch.num.messages": 1,
        "linger.ms": 0,
        "delivery.timeout.ms": BOUND_MS,
        "request.timeout.ms": ATTEMPT_TIMEOUT_MS,
        "socket.timeout.ms": ATTEMPT_TIMEOUT_MS,
        "reconnect.backoff.ms": 100,
        "reconnect.backoff.max.ms": 1_000,
    }
    retries = RetryPolicy(
        max_attempts=_NO_LIMIT,
        possibly_written=True,
        attempt_timeout_ms=ATTEMPT_TIMEOUT_MS,
        backoff=policy.backoff,
    )
    return ReliableProducer(
        settings, retries=retries, breaker=policy.breaker, throttle=policy.throttle, rng=Random(number)
    )
