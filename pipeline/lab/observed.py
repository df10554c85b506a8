"""One plain producer, watched: what it sent, in which batches, how long records waited where, and what it cost.

Batches and waits are what librdkafka's own statistics say (its STATISTICS.md); they come once per interval, of that
interval.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any

from confluent_kafka import KafkaError, Message, Producer

from pipeline.lab.sending import await_turn, connected_producer, outcomes, percentile

_STATISTICS_INTERVAL_MS = 250
_STATISTICS_TIMEOUT_S = 60.0
_POLL_S = 0.05
# More than go into one batch, so that none repeats within it.
_ORDERS = 5_000
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(slots=True)
class Observed:
    """What became of the records of one producer."""

    acknowledged: int = 0
    value_bytes: int = 0
    """Of the acknowledged records."""
    seconds: float = 0.0
    """From the first send to the last acknowledgement."""
    errors: dict[str, int] = field(default_factory=dict)
    latencies_ms: list[float] = field(default_factory=list)
    """From when a record was due to its acknowledgement."""
    batches: int = 0
    batch_records: int = 0
    """In all batches together."""
    batch_bytes: int = 0
    """Of all batches, before compression."""
    wire_bytes: int = 0
    """All that went to the brokers: batches as they are compressed, and requests around them."""
    queue_ms: float = 0.0
    """Mean time in the producer's own queue, which linger.ms is a part of."""
    round_trip_ms: float = 0.0
    """Mean time from a request to its answer."""
    client_cpu_s: float = 0.0
    full_waits: int = 0
    """How often the queue was full when a record was to be sent."""
    full_s: float = 0.0
    """Time spent waiting for room in it."""
    memory_bytes: int = 0
    """How much the process grew while it sent."""

    @property
    def records_per_batch(self) -> float:
        return self.batch_records / self.batches if self.batches else 0.0

    @property
    def records_per_s(self) -> float:
        return self.acknowledged / self.seconds if self.seconds else 0.0

    @property
    def megabytes_per_s(self) -> float:
        return self.value_bytes / self.seconds / 1e6 if self.seconds else 0.0

    @property
    def ratio(self) -> float:
        """Bytes of values for each byte on the wire."""
        return self.value_bytes / self.wire_bytes if self.wire_bytes else 0.0

    def latency_ms(self, share: float) -> float:
        return percentile(self.latencies_ms, share)


@dataclass(frozen=True, slots=True)
class Traffic:
    """What is sent: `value_of(number)` for so long, as fast as it goes or by a rate, without keys."""

    topic: str
    value_of: Callable[[int], bytes]
    seconds: float
    rate_per_s: float | None = None
    spread_over: int | None = None
    """Partitions that take turns; None: the client's partitioner chooses."""


def observe(bootstrap_server: str, settings: Mapping[str, Any], traffic: Traffic) -> Observed:
    """Send, and wait for the outcome of every record. Raises PipelineError where the client does not accept the
    settings, ClusterUnavailable where the outcomes do not come."""
    watch = _Watch()
    statistics = {"statistics.interval.ms": _STATISTICS_INTERVAL_MS, "stats_cb": watch.statistics}
    producer = connected_producer(bootstrap_server, traffic.topic, {**statistics, **settings})
    memory, cpu = memory_bytes(), time.process_time()
    begun_s = time.monotonic()
    _send(producer, traffic, watch, begun_s)
    for _ in outcomes(producer):
        watch.peak_bytes = max(watch.peak_bytes, memory_bytes())
    found = watch.found
    found.client_cpu_s = time.process_time() - cpu
    found.seconds = max(watch.last_at_s - begun_s, 1e-9)
    assert found.acknowledged + sum(found.errors.values()) == watch.sent, "every record has an outcome"
    # The statistics of the last interval.
    seen, deadline_s = watch.reports, time.monotonic() + _STATISTICS_TIMEOUT_S
    while watch.reports < seen + 2 and time.monotonic() < deadline_s:
        producer.poll(_POLL_S)
    found.queue_ms, found.round_trip_ms = watch.mean("int_latency"), watch.mean("rtt")
    found.memory_bytes = max(watch.peak_bytes - memory, 0)
    return found


def _send(producer: Producer, traffic: Traffic, watch: _Watch, begun_s: float) -> None:
    until_s = begun_s + traffic.seconds
    for number in count():
        due_s = await_turn(producer, begun_s, number, traffic.rate_per_s)
        if due_s >= until_s:
            return
        value = traffic.value_of(number)
        partition = -1 if traffic.spread_over is None else number % traffic.spread_over
        reported = partial(watch.reported, due_s, len(value))
        _produce(producer, traffic.topic, value, partition, reported, watch)
        watch.sent += 1


def _produce(
    producer: Producer, topic: str, value: bytes, partition: int, reported: Any, watch: _Watch
) -> None:
    try:
        producer.produce(topic, value, partition=partition, on_delivery=reported)
        return
    except BufferError:
        watch.found.full_waits += 1
    waits_since_s = time.monotonic()
    while True:
        producer.poll(_POLL_S)
        watch.peak_bytes = max(watch.peak_bytes, memory_bytes())
        try:
            producer.produce(topic, value, partition=partition, on_delivery=reported)
            break
        except BufferError:
            continue
    watch.found.full_s += time.monotonic() - waits_since_s


class _Watch:
    """Takes reports and statistics, both in the sending thread."""

    def __init__(self) -> None:
        self.found = Observed()
        self.sent = 0
        self.reports = 0
        self.last_at_s = 0.0
        self.peak_bytes = 0
        #: Sums of microseconds and their numbers, by the name of the window.
        self._windows: dict[str, list[int]] = {"int_latency": [0, 0], "rtt": [0, 0]}
        self._wire_bytes = 0

    def reported(self, due_s: float, size: int, error: KafkaError | None, _: Message) -> None:
        self.last_at_s = time.monotonic()
        if error is not None:
            self.found.errors[error.name()] = self.found.errors.get(error.name(), 0) + 1
            return
        self.found.acknowledged += 1
        self.found.value_bytes += size
        self.found.latencies_ms.append((self.last_at_s - due_s) * 1000)

    def statistics(self, text: str) -> None:
        self.reports += 1
        said = json.loads(text)
        for broker in said["brokers"].values():
            for name, sums in self._windows.items():
                sums[0] += broker[name]["sum"]
                sums[1] += broker[name]["cnt"]
        self.found.wire_bytes = sum(broker["txbytes"] for broker in said["brokers"].values())
        for topic in said["topics"].values():
            self.found.batches += topic["batchcnt"]["cnt"]
            self.found.batch_records += topic["batchcnt"]["sum"]
            self.found.batch_bytes += topic["batchsize"]["sum"]
        self.peak_bytes = max(self.peak_bytes, memory_bytes())

    def mean(self, window: str) -> float:
        """In milliseconds."""
        total_us, number = self._windows[window]
        return total_us / number / 1000 if number else 0.0


def order(number: int) -> bytes:
    """A JSON value as an application may write it, of some 300 bytes: texts that repeat, numbers that do not."""
    mixed = number * 2_654_435_761 % (1 << 32)
    return json.dumps(
        {
            "order_id": f"{mixed:08x}-{number:06d}",
            "customer": {"id": mixed % 10_007, "name": f"customer-{mixed % 10_007}", "tier": "standard"},
            "state": ("placed", "paid", "shipped")[number % 3],
            "currency": "EUR",
            "total": mixed % 1_000_000 / 100,
            "lines": [
                {"sku": f"sku-{mixed % 5_003}", "quantity": 1 + number % 4, "price": mixed % 9_973 / 100}
            ],
            "placed_at": f"2026-11-26T20:{number // 60 % 60:02d}:{number % 60:02d}Z",
        },
        separators=(",", ":"),
    ).encode()


def orders() -> Callable[[int], bytes]:
    """Values of `order`, made beforehand: else making them would be what is measured."""
    made = [order(number) for number in range(_ORDERS)]
    return lambda number: made[number % _ORDERS]


def filled(size: int) -> Callable[[int], bytes]:
    """Values of one size that do not compress to nothing."""
    block = os.urandom(size).hex().encode()[:size]
    return lambda number: block


def cpu_s(pid: int) -> float:
    """Processor time of a process, in it and in the kernel; 0 of one that has ended."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            fields = file.read().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def memory_bytes() -> int:
    """Resident memory of this process."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * _PAGE_BYTES
