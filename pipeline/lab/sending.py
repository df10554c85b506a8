"""Numbered records: sent by one plain producer, read back, and compared with what was acknowledged.

The experiments with faults need settings that the loading job refuses to have, so they send by themselves. Each topic
has one partition, so that the log has one order.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import count, pairwise
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from pipeline.errors import ClusterUnavailable, PipelineError

_READ_TIMEOUT_S = 30.0
_OUTCOME_TIMEOUT_S = 60.0
_PURGE_TIMEOUT_S = 60.0
_POLL_S = 0.05
_READ_AT_ONCE = 10_000


@dataclass(slots=True)
class Sent:
    """What a producer was told."""

    records: int = 0
    acknowledged: list[int] = field(default_factory=list)
    """Numbers, in the order of their acknowledgements."""
    acknowledged_at_s: list[float] = field(default_factory=list)
    latencies_ms: list[float] = field(default_factory=list)
    """Of each acknowledged record, from the time at which it was due."""
    errors: Counter[str] = field(default_factory=Counter)
    begun_at_s: float = 0.0
    """Monotonic, like all times here."""

    def per_second(self) -> float:
        """Acknowledged records per second, from the first send to the last acknowledgement."""
        if not self.acknowledged_at_s:
            return 0.0
        return len(self.acknowledged) / max(1e-9, self.acknowledged_at_s[-1] - self.begun_at_s)


@dataclass(frozen=True, slots=True)
class Sending:
    """How records are sent: `records` of them or for `seconds`, as fast as the client takes them or by a rate."""

    bootstrap_server: str
    topic: str
    settings: Mapping[str, Any]
    """librdkafka's."""
    value_bytes: int = 1_000
    records: int | None = None
    seconds: float | None = None
    rate_per_s: float | None = None


def send(
    sending: Sending, gives_up: threading.Event | None = None, ends: threading.Event | None = None
) -> Sent:
    """Send, and wait for the outcome of every record. `ends`: no further record is sent; `gives_up`: nor is any waited
    for.

    Raises PipelineError where the client does not accept the settings.
    """
    gives_up, ends = gives_up or threading.Event(), ends or threading.Event()
    sent = Sent()
    producer = connected_producer(sending.bootstrap_server, sending.topic, sending.settings)
    sent.begun_at_s = time.monotonic()
    until_s = None if sending.seconds is None else sent.begun_at_s + sending.seconds
    padding = b"." * sending.value_bytes
    for number in count():
        if number == sending.records or ends.is_set() or gives_up.is_set():
            break
        due_s = await_turn(producer, sent.begun_at_s, number, sending.rate_per_s)
        if until_s is not None and due_s >= until_s:
            break
        value = (b"%d" % number + padding)[: max(sending.value_bytes, 20)]
        _produce(producer, sending.topic, value, partial(_reported, sent, number, due_s), gives_up)
        sent.records = number + 1
    _finish(producer, gives_up)
    return sent


def connected_producer(bootstrap_server: str, topic: str, settings: Mapping[str, Any]) -> Producer:
    """One that has connected and knows who leads, which is not part of what is measured. Raises PipelineError where the
    client does not accept the settings."""
    try:
        producer = Producer({"bootstrap.servers": bootstrap_server, "log_level": 2, **settings})
    except KafkaException as error:
        raise PipelineError(f"the client does not accept the settings: {error.args[0].str()}") from error
    producer.list_topics(topic, timeout=_READ_TIMEOUT_S)
    return producer


def await_turn(producer: Producer, begun_at_s: float, number: int, rate_per_s: float | None) -> float:
    """When the record is due; acknowledgements are taken meanwhile."""
    producer.poll(0)
    if rate_per_s is None:
        return time.monotonic()
    due_s = begun_at_s + number / rate_per_s
    while (left_s := due_s - time.monotonic()) > 0:
        producer.poll(left_s)
    return due_s


def _produce(producer: Producer, topic: str, value: bytes, reported: Any, gives_up: threading.Event) -> None:
    while not gives_up.is_set():
        try:
            producer.produce(topic, value, partition=0, on_delivery=reported)
            return
        except BufferError:
            producer.poll(_POLL_S)
        except KafkaException as error:
            raise PipelineError(f"the client takes no more records: {error.args[0].str()}") from error


def _reported(sent: Sent, number: int, due_s: float, error: KafkaError | None, _: Message) -> None:
    now_s = time.monotonic()
    if error is not None:
        sent.errors[error.name()] += 1
        return
    sent.acknowledged.append(number)
    sent.acknowledged_at_s.append(now_s)
    sent.latencies_ms.append((now_s - due_s) * 1000)


def _finish(producer: Producer, gives_up: threading.Event) -> None:
    for _ in outcomes(producer):
        if gives_up.is_set():
            break
    producer.purge()
    producer.flush(_PURGE_TIMEOUT_S)


def outcomes(producer: Producer, timeout_s: float = _OUTCOME_TIMEOUT_S) -> Iterator[None]:
    """Take outcomes a turn at a time, until every record has one. Raises ClusterUnavailable where none has come for
    `timeout_s`: how long all of them take depends on how much the client queued, and on how slow the cluster is."""
    left, since_s = len(producer), time.monotonic()
    while left > 0:
        producer.flush(_POLL_S)
        if len(producer) < left:
            since_s = time.monotonic()
        elif time.monotonic() - since_s > timeout_s:
            raise ClusterUnavailable(f"records without an outcome: {left:,}; none came for {timeout_s:.0f} s")
        left = len(producer)
        yield


def read_back(bootstrap_server: str, topic: str, isolation_level: str = "read_committed") -> list[int]:
    """The numbers in the log of partition 0, in its order. Raises ClusterUnavailable where it cannot be read."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_server,
            "group.id": f"{topic}-read-back",
            "isolation.level": isolation_level,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "log_level": 2,
        }
    )
    found: list[int] = []
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        deadline_s = time.monotonic() + _READ_TIMEOUT_S
        while True:
            for message in consumer.consume(_READ_AT_ONCE, _POLL_S):
                error = message.error()
                if error is None:
                    found.append(number_of(message.value()))
                    deadline_s = time.monotonic() + _READ_TIMEOUT_S
                elif error.code() == KafkaError._PARTITION_EOF:
                    return found
            if time.monotonic() > deadline_s:
                raise ClusterUnavailable(
                    f"topic {topic} cannot be read: nothing came for {_READ_TIMEOUT_S:.0f} s"
                )
    finally:
        consumer.close()


def number_of(value: bytes | str | None) -> int:
    assert isinstance(value, bytes), "numbered records have values"
    return int(value.rstrip(b"."))


@dataclass(frozen=True, slots=True)
class Verdict:
    """The log beside what was acknowledged."""

    acknowledged: int
    in_log: int
    lost: int
    """Acknowledged and not in the log."""
    doubled: int
    """Copies beyond the first."""
    steps_back: int
    """Places where the log goes back to an earlier record, which a reader then sees after a newer one."""


def judge(acknowledged: list[int], log: list[int]) -> Verdict:
    copies = Counter(log)
    return Verdict(
        acknowledged=len(acknowledged),
        in_log=len(log),
        lost=sum(number not in copies for number in set(acknowledged)),
        doubled=len(log) - len(copies),
        steps_back=sum(later < earlier for earlier, later in pairwise(log)),
    )


def percentile(values: list[float], share: float) -> float:
    """The smallest value that at least this share of the values do not exceed; 0 where there are none."""
    if not values:
        return 0.0
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, -(-int(share * 1000) * len(ordered) // 1000) - 1))]
