"""The settings of a producer: a baseline that keeps records safe, the caller's own, and what cannot go together.

Keys are librdkafka's and Kafka's. Two have a meaning of their own here: `delivery.timeout.ms` bounds all attempts of a
record together, and `max.block.ms` (of the Java client) is how long `send` waits when it does not say otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pipeline.producer.errors import SettingsError
from pipeline.producer.retries import RetryPolicy

BASELINE: Mapping[str, Any] = {
    # Acknowledged means: on all replicas that are in sync.
    "acks": "all",
    # librdkafka's retries neither duplicate nor reorder (KIP-98).
    "enable.idempotence": True,
    # The same key goes to the same partition as with Java's producer.
    "partitioner": "murmur2_random",
    "delivery.timeout.ms": 120_000,
    "max.block.ms": 60_000,
    # A frozen broker leaves its connections open. librdkafka's minute would hide a fail-over of a second.
    "request.timeout.ms": 10_000,
    "socket.timeout.ms": 10_000,
    "retry.backoff.ms": 100,
    "retry.backoff.max.ms": 1_000,
    "reconnect.backoff.max.ms": 1_000,
    "linger.ms": 5,
    # What the process may hold: then `send` waits. librdkafka's gigabyte is no bound for most processes.
    "queue.buffering.max.messages": 100_000,
    "queue.buffering.max.kbytes": 64 * 1024,
    # A mistyped topic is an error, not a new topic.
    "allow.auto.create.topics": False,
}

# One setting, two names in librdkafka. The first is used here.
_ALIASES: Mapping[str, str] = {
    "metadata.broker.list": "bootstrap.servers",
    "request.required.acks": "acks",
    "message.timeout.ms": "delivery.timeout.ms",
    "queue.buffering.max.ms": "linger.ms",
    "message.send.max.retries": "retries",
    "max.in.flight": "max.in.flight.requests.per.connection",
    "compression.codec": "compression.type",
}

#: librdkafka looks for expired records once a second. So much less is given to it, where that leaves it half.
EXPIRY_SCAN_MS = 1_000
_MIN_ATTEMPT_TIMEOUT_MS = 100
_DEFAULT_TRANSACTION_TIMEOUT_MS = 60_000
_REFUSED: Mapping[str, str] = {
    "on_delivery": "give the callback to send(), for each record",
    "dr_cb": "give the callback to send(), for each record",
    "delivery.report.only.error": "without reports of delivered records nothing can be said about any",
}


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """What the wrapper needs to know, and the configurations of its librdkafka producers."""

    client: Mapping[str, Any]
    side_client: Mapping[str, Any]
    """Of the producer for retries and dead letters: one record a batch, so that each is judged alone."""
    bound_ms: int
    """`delivery.timeout.ms`: all attempts of a record together."""
    attempt_timeout_ms: int
    """Of a retry or a dead letter."""
    block_ms: int
    queue_max_records: int
    is_transactional: bool


def producer_settings(
    given: Mapping[str, Any], retries: RetryPolicy | None, dead_letter_topic: str | None
) -> ProducerSettings:
    """Raises SettingsError. What only librdkafka can judge is judged when the producer is made."""
    own = without_aliases(given)
    for key, instead in _REFUSED.items():
        if key in own:
            raise SettingsError(f"{key} cannot be set: {instead}")
    if not own.get("bootstrap.servers"):
        raise SettingsError("bootstrap.servers is missing: HOST:PORT[,HOST:PORT...] of some brokers")
    merged = {**BASELINE, **own}
    is_transactional = bool(merged.get("transactional.id"))
    _check_idempotence(merged, own)
    if is_transactional:
        _check_transactional(merged, own, retries, dead_letter_topic)
    bound_ms = _fit_timeouts(merged, own)
    if _integer(merged, "queue.buffering.max.messages") < 1:
        raise SettingsError(
            "queue.buffering.max.messages must be at least 1: a queue without bound takes all memory"
        )
    block_ms = _integer(merged, "max.block.ms")
    if block_ms < 0:
        raise SettingsError("max.block.ms must not be negative")
    attempt_timeout_ms = _attempt_timeout_ms(retries, bound_ms)
    merged.pop("max.block.ms")
    return ProducerSettings(
        client={**merged, "delivery.timeout.ms": _client_timeout_ms(retries, bound_ms, attempt_timeout_ms)},
        side_client=_side_client(merged, attempt_timeout_ms),
        bound_ms=bound_ms,
        attempt_timeout_ms=attempt_timeout_ms,
        block_ms=block_ms,
        queue_max_records=_integer(merged, "queue.buffering.max.messages"),
        is_transactional=is_transactional,
    )


def without_aliases(given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings by their first names. Raises SettingsError where two names of one setting differ."""
    own: dict[str, Any] = {}
    for key, value in given.items():
        name = _ALIASES.get(key, key)
        if name in own and own[name] != value:
            other = next(x for x in given if x != key and _ALIASES.get(x, x) == name)
            raise SettingsError(f"{other} and {key} are the same setting: say {name} once")
        own[name] = value
    return own


def _check_idempotence(merged: Mapping[str, Any], own: Mapping[str, Any]) -> None:
    if not _boolean(merged, "enable.idempotence"):
        return
    whose = "" if "enable.idempotence" in own else " (the default here)"
    without = f"enable.idempotence=true{whose}"
    if str(merged["acks"]) not in ("all", "-1"):
        raise SettingsError(
            f"acks={merged['acks']} contradicts {without}: leave acks=all, or set enable.idempotence=false and accept"
            " that records can be lost, doubled and reordered"
        )
    if "max.in.flight.requests.per.connection" in own:
        in_flight = _integer(merged, "max.in.flight.requests.per.connection")
        if in_flight > 5:
            raise SettingsError(
                f"max.in.flight.requests.per.connection={in_flight} contradicts {without}:"
                " brokers remember the last 5 batches of a producer, no more"
            )
    if "retries" in own and _integer(merged, "retries") == 0:
        raise SettingsError(f"retries=0 contradicts {without}: set a short delivery.timeout.ms instead")


def _check_transactional(
    merged: dict[str, Any], own: Mapping[str, Any], retries: RetryPolicy | None, dead_letter_topic: str | None
) -> None:
    if not _boolean(merged, "enable.idempotence"):
        raise SettingsError("transactional.id contradicts enable.idempotence=false")
    if dead_letter_topic is not None:
        raise SettingsError(
            "transactional.id contradicts a dead-letter topic: a record that is refused aborts its whole transaction"
        )
    if retries is not None:
        raise SettingsError(
            "transactional.id contradicts retries of single records: a record that fails aborts its whole transaction;"
            " pass retries=None and try the transaction again"
        )
    merged.setdefault("transaction.timeout.ms", _DEFAULT_TRANSACTION_TIMEOUT_MS)
    transaction_ms = _integer(merged, "transaction.timeout.ms")
    if "delivery.timeout.ms" not in own:
        merged["delivery.timeout.ms"] = min(_integer(merged, "delivery.timeout.ms"), transaction_ms)
    elif _integer(merged, "delivery.timeout.ms") > transaction_ms:
        raise SettingsError(
            f"delivery.timeout.ms={own['delivery.timeout.ms']} contradicts transaction.timeout.ms={transaction_ms}:"
            " the coordinator would abort the transaction while its records are still tried"
        )
    if "socket.timeout.ms" not in own:
        # librdkafka wants it 100 ms below.
        merged["socket.timeout.ms"] = min(_integer(merged, "socket.timeout.ms"), transaction_ms - 100)


def _fit_timeouts(merged: dict[str, Any], own: Mapping[str, Any]) -> int:
    """The bound. What the baseline says of requests gives way to it; what the caller says must fit."""
    bound_ms = _integer(merged, "delivery.timeout.ms")
    if bound_ms <= 0:
        raise SettingsError(
            "delivery.timeout.ms must be above 0: it is the bound by which each record has an outcome"
        )
    try:
        linger_ms = float(merged["linger.ms"])
    except (TypeError, ValueError):
        raise SettingsError(f"linger.ms must be a number, not {merged['linger.ms']!r}") from None
    if linger_ms >= bound_ms:
        raise SettingsError(f"linger.ms={linger_ms:g} leaves nothing of delivery.timeout.ms={bound_ms}")
    for key in ("request.timeout.ms", "socket.timeout.ms"):
        value = _integer(merged, key)
        if value <= bound_ms:
            continue
        if key in own:
            raise SettingsError(
                f"{key}={value} contradicts delivery.timeout.ms={bound_ms}: one request outlasts the bound"
            )
        merged[key] = bound_ms
    return bound_ms


def _attempt_timeout_ms(retries: RetryPolicy | None, bound_ms: int) -> int:
    if retries is None or retries.attempt_timeout_ms is None:
        return max(bound_ms // 4, min(_MIN_ATTEMPT_TIMEOUT_MS, bound_ms))
    if retries.attempt_timeout_ms > bound_ms:
        raise SettingsError(
            f"attempt_timeout_ms={retries.attempt_timeout_ms} is longer than delivery.timeout.ms={bound_ms},"
            " which bounds all attempts together"
        )
    return retries.attempt_timeout_ms


def _client_timeout_ms(retries: RetryPolicy | None, bound_ms: int, attempt_timeout_ms: int) -> int:
    if retries is not None and retries.possibly_written:
        return attempt_timeout_ms
    return max(bound_ms // 2, bound_ms - EXPIRY_SCAN_MS)


def _side_client(merged: Mapping[str, Any], attempt_timeout_ms: int) -> dict[str, Any]:
    side = {
        **merged,
        "delivery.timeout.ms": attempt_timeout_ms,
        "batch.num.messages": 1,
        "linger.ms": 0,
        # The dead-letter topic's own limit decides, not that of the producer which refused the record.
        "message.max.bytes": 1_000_000_000,
        "client.id": f"{merged.get('client.id', 'rdkafka')}-side",
    }
    for key in ("request.timeout.ms", "socket.timeout.ms"):
        side[key] = min(_integer(merged, key), attempt_timeout_ms)
    for key in ("transactional.id", "transaction.timeout.ms", "stats_cb", "statistics.interval.ms"):
        side.pop(key, None)
    return side


def _integer(settings: Mapping[str, Any], key: str) -> int:
    try:
        return int(settings[key])
    except (TypeError, ValueError):
        raise SettingsError(f"{key} must be a whole number, not {settings[key]!r}") from None


def _boolean(settings: Mapping[str, Any], key: str) -> bool:
    text = str(settings[key]).lower()
    if text not in ("true", "false"):
        raise SettingsError(f"{key} must be true or false, not {settings[key]!r}")
    return text == "true"
