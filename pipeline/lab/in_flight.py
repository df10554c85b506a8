"""Requests in flight over a longer way, and a replica that stops now and then.

librdkafka has one batch of a partition under way at a time where its producer is idempotent, whatever
max.in.flight.requests.per.connection says (librdkafka's pull request 4989). So both kinds are measured.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any

from confluent_kafka import Producer

from pipeline.errors import PipelineError
from pipeline.lab.bench import Bench
from pipeline.lab.proxy import Proxy
from pipeline.lab.sending import Sending, Sent, percentile, send
from pipeline.report.findings import TableOf, plot_of
from pipeline.report.sweep import Axis, Cell, Series, Sweep, Table

_ADDED_MS = (0, 5, 50)
_IN_FLIGHT = (1, 2, 3, 4, 5)
_BATCH_RECORDS = 16
_VALUE_BYTES = 1_000
_BATCH_BYTES = _BATCH_RECORDS * _VALUE_BYTES
_FULL_BATCHES: dict[str, Any] = {
    "acks": "all",
    "batch.num.messages": _BATCH_RECORDS,
    # Full batches only: there is always more than one in the queue.
    "linger.ms": 100,
    "queue.buffering.max.messages": 50 * _BATCH_RECORDS,
}
_ONE_AT_A_TIME: dict[str, Any] = {"enable.idempotence": True, "linger.ms": 0}
_FLUSH_TIMEOUT_S = 30.0
# Below this, five requests in flight carried no more than one.
_NO_GAIN = 1.3
# Of a follower, in the second half of each period.
_FROZEN_S, _PERIOD_S = 0.5, 1.0
_PACED_PER_S = 200.0


@dataclass(frozen=True, slots=True)
class _Sizes:
    seconds: float
    alone: int
    """Batches, or records, that are sent one after the other."""


_SIZES = _Sizes(seconds=4.0, alone=40)
_QUICK = _Sizes(seconds=0.5, alone=5)


@dataclass(frozen=True, slots=True)
class _Point:
    added_ms: int
    is_idempotent: bool
    in_flight: int
    megabytes_per_s: float
    model_megabytes_per_s: float


def run(bench: Bench) -> Sweep:
    """Raises PipelineError."""
    sizes = _QUICK if bench.is_quick else _SIZES
    bench.warm_up()
    with Proxy(bench.bootstrap_server) as proxy:
        points, throughput = _throughput(bench, proxy, sizes)
        latencies, latency = _latency(bench, proxy, sizes)
    follower, seen_of_follower = _slow_follower(bench, sizes)
    series = [
        Series(
            f"{added_ms} ms added{', model' if is_model else ''}",
            _curve(points, added_ms, False, is_model),
            is_model,
        )
        for added_ms in _ADDED_MS
        for is_model in (False, True)
    ]
    far_ms = _ADDED_MS[-1]
    series.append(Series(f"{far_ms} ms added, idempotent", _curve(points, far_ms, True, False), False))
    plot = plot_of(
        "Throughput by requests in flight",
        Axis("max.in.flight.requests.per.connection", "", "linear"),
        Axis("throughput", "MB/s", "log"),
        *series,
    )
    return Sweep(
        "In flight",
        f"{_seen(points, latencies)} {seen_of_follower}",
        [throughput.table(), latency.table(), follower],
        [plot],
    )


def _curve(
    points: list[_Point], added_ms: int, is_idempotent: bool, is_model: bool
) -> list[tuple[float | str, float]]:
    return [
        (float(p.in_flight), p.model_megabytes_per_s if is_model else p.megabytes_per_s)
        for p in points
        if p.added_ms == added_ms and p.is_idempotent is is_idempotent
    ]


def _seen(points: list[_Point], latencies: dict[int, float]) -> str:
    by_place = {(p.added_ms, p.is_idempotent, p.in_flight): p for p in points}
    least, most = _IN_FLIGHT[0], _IN_FLIGHT[-1]
    sentences = []
    for added_ms in _ADDED_MS:
        one, five = by_place[added_ms, False, least], by_place[added_ms, False, most]
        way = f"With {added_ms} ms of added round trip" if added_ms else "On the bare way"
        sentences.append(
            f"{way} five batches in flight carried {five.megabytes_per_s / one.megabytes_per_s:.1f} times as much as"
            f" one ({five.megabytes_per_s:.1f} against {one.megabytes_per_s:.1f} MB/s;"
            f" {five.megabytes_per_s / five.model_megabytes_per_s:.0%} of in flight x batch / round trip)."
        )
    base_ms, far_ms = latencies[_ADDED_MS[0]], latencies[_ADDED_MS[-1]]
    one, five = (by_place[_ADDED_MS[-1], True, in_flight] for in_flight in (least, most))
    sentences.append(
        f"Over the longest way an idempotent producer carried {five.megabytes_per_s:.1f} MB/s with five allowed and"
        f" {one.megabytes_per_s:.1f} with one."
    )
    if five.megabytes_per_s < _NO_GAIN * one.megabytes_per_s:
        sentences.append(
            "It has one batch of a partition under way at a time, so that larger batches or more partitions help it,"
            " and this setting does not."
        )
    sentences.append(
        f"A single record took {base_ms:.1f} ms on the bare way, which is the cluster's own time (replication, and a"
        f" flush where it flushes), and {far_ms:.1f} ms with {_ADDED_MS[-1]} ms added; the sum would be"
        f" {base_ms + _ADDED_MS[-1]:.1f} ms."
    )
    return " ".join(sentences)


def _throughput(bench: Bench, proxy: Proxy, sizes: _Sizes) -> tuple[list[_Point], TableOf]:
    table = TableOf(
        "Throughput beside in flight x batch / round trip",
        (
            ("added", "ms"),
            "idempotent",
            "in flight",
            ("round trip", "ms"),
            ("measured", "MB/s"),
            ("model", "MB/s"),
        ),
        f"One partition, acks=all, batches of {_BATCH_RECORDS} records of {_VALUE_BYTES:,} B. The round trip is that of"
        " one full batch that travels alone, with its flush and its replication.",
    )
    points = []
    topic = bench.topic("in-flight")
    for added_ms in _ADDED_MS:
        proxy.set_all(delay_s=added_ms / 2000)
        round_trip_ms = _alone_ms(proxy, topic, _FULL_BATCHES, _BATCH_RECORDS, sizes.alone)
        kinds = [(False, in_flight) for in_flight in _IN_FLIGHT]
        kinds += [(True, in_flight) for in_flight in (_IN_FLIGHT[0], _IN_FLIGHT[-1])]
        for is_idempotent, in_flight in kinds:
            bench.say(f"{added_ms} ms added, {in_flight} in flight, idempotence {is_idempotent}")
            settings = {
                **_FULL_BATCHES,
                "enable.idempotence": is_idempotent,
                "max.in.flight.requests.per.connection": in_flight,
            }
            sent = send(Sending(proxy.bootstrap_server, topic, settings, _VALUE_BYTES, seconds=sizes.seconds))
            _check_complete(sent)
            measured = sent.per_second() * _VALUE_BYTES / 1e6
            model = in_flight * _BATCH_BYTES / round_trip_ms / 1e3
            points.append(_Point(added_ms, is_idempotent, in_flight, measured, model))
            table.add(added_ms, is_idempotent, in_flight, round_trip_ms, measured, model)
    proxy.set_all()
    return points, table


def _latency(bench: Bench, proxy: Proxy, sizes: _Sizes) -> tuple[dict[int, float], TableOf]:
    """By added milliseconds: the median latency of records that are sent one after the other."""
    table = TableOf(
        "Latency beside round trip + flush",
        (("added", "ms"), ("median", "ms"), ("model", "ms")),
        "One record at a time. The model is what a record takes on the bare way (flush and replication) plus what is"
        " added.",
    )
    topic = bench.topic("latency")
    latencies = {}
    for added_ms in _ADDED_MS:
        proxy.set_all(delay_s=added_ms / 2000)
        latencies[added_ms] = _alone_ms(proxy, topic, _ONE_AT_A_TIME, 1, sizes.alone)
        table.add(added_ms, latencies[added_ms], latencies[_ADDED_MS[0]] + added_ms)
    proxy.set_all()
    return latencies, table


def _alone_ms(proxy: Proxy, topic: str, settings: dict[str, Any], records: int, times: int) -> float:
    """The median time from so many records to their acknowledgement, while nothing else is under way."""
    producer = Producer({"bootstrap.servers": proxy.bootstrap_server, "log_level": 2, **settings})
    took_ms = []
    # The first connects.
    for _ in range(times + 1):
        begun_s = time.monotonic()
        for _ in range(records):
            producer.produce(topic, b"." * _VALUE_BYTES, partition=0)
        if producer.flush(_FLUSH_TIMEOUT_S):
            raise PipelineError(f"no acknowledgement within {_FLUSH_TIMEOUT_S:.0f} s")
        took_ms.append((time.monotonic() - begun_s) * 1000)
    return median(took_ms[1:])


def _slow_follower(bench: Bench, sizes: _Sizes) -> tuple[Table, str]:
    topic = bench.topic("follower")
    table = TableOf(
        "A follower that stops now and then",
        ("follower", ("records", "1/s"), ("median", "ms"), ("99th", "ms"), ("longest", "ms")),
        f"{_PACED_PER_S:g} records/s, acks=all. One follower of the partition is stopped (SIGSTOP) for"
        f" {_FROZEN_S:g} s in each {_PERIOD_S:g} s.",
    )
    follower = next((node for node in bench.replicas(topic) if node != bench.leader(topic)), None)
    if bench.nodes is None or follower is None or not bench.nodes.can_freeze(follower):
        not_tried: list[Cell] = [
            "not tried: needs a replica whose --node-pid is known",
            None,
            None,
            None,
            None,
        ]
        table.add(*not_tried)
        return table.table(), "A slow follower was not tried, as the processes of the nodes are not known."
    seconds = 4 * sizes.seconds
    p99_ms = {}
    for is_slow in (False, True):
        bench.say(f"follower {follower} {'stops now and then' if is_slow else 'is well'}")
        sending = Sending(
            bench.bootstrap_server,
            topic,
            _ONE_AT_A_TIME,
            _VALUE_BYTES,
            seconds=seconds,
            rate_per_s=_PACED_PER_S,
        )
        if is_slow:
            with _stopping_now_and_then(bench, follower):
                sent = send(sending)
        else:
            sent = send(sending)
        _check_complete(sent)
        p99_ms[is_slow] = percentile(sent.latencies_ms, 0.99)
        table.add(
            "slow" if is_slow else "well",
            sent.per_second(),
            percentile(sent.latencies_ms, 0.5),
            p99_ms[is_slow],
            max(sent.latencies_ms),
        )
    return table.table(), (
        f"With a follower that is stopped half of the time the 99th percentile was {p99_ms[True]:.1f} ms,"
        f" with a well one {p99_ms[False]:.1f} ms."
    )


@contextmanager
def _stopping_now_and_then(bench: Bench, node_id: int) -> Iterator[None]:
    nodes = bench.nodes
    assert nodes is not None, "the caller has looked"
    is_over = threading.Event()
    failures: list[Exception] = []

    def stop_and_go() -> None:
        try:
            while not is_over.wait(_PERIOD_S - _FROZEN_S):
                nodes.freeze(node_id)
                try:
                    is_over.wait(_FROZEN_S)
                finally:
                    nodes.thaw(node_id)
        except PipelineError as error:
            failures.append(error)

    thread = threading.Thread(target=stop_and_go, name="follower")
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
    if failures:
        raise failures[0]


def _check_complete(sent: Sent) -> None:
    if sent.errors:
        name, number = sent.errors.most_common(1)[0]
        raise PipelineError(
            f"{sum(sent.errors.values())} records were not acknowledged, {number} with {name}"
        )
