"""The jobs that write: as fast as it goes, one record in flight, or at a rate."""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from confluent_kafka import KafkaError, Message, Producer

from benchmarks.python_driver.client import emit, log_end, monotonic_us, new_producer

FLUSH_TIMEOUT_S = 60.0
QUANTILES: Mapping[str, float] = {"p50": 50, "p90": 90, "p99": 99, "p99_9": 99.9}


def percentiles(values_us: list[int]) -> dict[str, int]:
    ordered = sorted(values_us)
    if not ordered:
        return {"count": 0, "p50": 0, "p90": 0, "p99": 0, "p99_9": 0, "max": 0}
    at = {name: ordered[min(len(ordered) - 1, int(len(ordered) * p / 100))] for name, p in QUANTILES.items()}
    return {"count": len(ordered), **at, "max": ordered[-1]}


@dataclass
class Reports:
    """Counts delivery reports. `window_open` decides what is part of the figure."""

    acknowledged: int = 0
    errors: int = 0
    window_records: int = 0
    window_open: bool = False
    first_error: str = ""
    latencies_us: list[int] = field(default_factory=list)
    last_ack_us: int = 0
    longest_gap_us: int = 0
    gap_began_us: int = 0

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.errors += 1
            self.first_error = self.first_error or str(error)
            return
        self.acknowledged += 1
        if not self.window_open:
            return
        self.window_records += 1
        self.latencies_us.append(int((message.latency() or 0) * 1e6))
        now_us = monotonic_us()
        if self.last_ack_us and now_us - self.last_ack_us > self.longest_gap_us:
            self.longest_gap_us, self.gap_began_us = now_us - self.last_ack_us, self.last_ack_us
        self.last_ack_us = now_us


def produce_one(producer: Producer, options: argparse.Namespace, payload: bytes, reports: Reports) -> None:
    while True:
        try:
            producer.produce(options.topic, payload, partition=0, on_delivery=reports)
            break
        except BufferError:  # the queue is full
            producer.poll(0.01)
    producer.poll(0)


def drain(producer: Producer, produced: int, reports: Reports) -> None:
    producer.flush(FLUSH_TIMEOUT_S)
    missing = produced - reports.acknowledged - reports.errors
    if missing:
        reports.first_error = reports.first_error or "no delivery report in time"
    reports.errors += missing


def emit_producing(
    reports: Reports,
    options: argparse.Namespace,
    produced: int,
    seconds: float,
    log_growth: int,
    single: bool,
) -> None:
    emit(
        "result",
        records=reports.window_records,
        bytes=reports.window_records * options.record_bytes,
        seconds=seconds,
        requests=reports.window_records if single else None,
        produced=produced,
        acknowledged=reports.acknowledged,
        errors=reports.errors,
        log_growth=log_growth,
        longest_gap_us=reports.longest_gap_us,
        gap_began_us=reports.gap_began_us,
        first_error=reports.first_error,
        request_us=percentiles([]),
        record_us=percentiles(reports.latencies_us),
    )


def run_produce(options: argparse.Namespace) -> None:
    producer, reports, produced = new_producer(options, options.in_flight, options.linger_ms), Reports(), 0
    payload, before = bytes(options.record_bytes), log_end(producer, options)
    open_at = time.monotonic() + options.warmup_seconds
    close_at, opened = open_at + options.seconds, 0.0
    while produced < options.total_records if options.total_records else time.monotonic() < close_at:
        if not opened and time.monotonic() >= open_at:
            opened, reports.window_open = time.monotonic(), True
            emit("begin")
        produce_one(producer, options, payload, reports)
        produced += 1
    if options.total_records:
        drain(producer, produced, reports)
    reports.window_open = False
    seconds = time.monotonic() - (opened or open_at)
    emit("end")
    drain(producer, produced, reports)
    emit_producing(reports, options, produced, seconds, log_end(producer, options) - before, single=False)


def run_latency(options: argparse.Namespace) -> None:
    producers = [new_producer(options, 1, 0) for _ in range(options.producers)]
    all_reports = [Reports() for _ in producers]
    payload, stop, before = bytes(options.record_bytes), threading.Event(), log_end(producers[0], options)

    def one_in_flight(producer: Producer, reports: Reports) -> None:
        produced = 0
        while not stop.is_set():
            produce_one(producer, options, payload, reports)
            produced += 1
            while reports.acknowledged + reports.errors < produced:
                producer.poll(1)

    threads = [
        threading.Thread(target=one_in_flight, args=pair) for pair in zip(producers, all_reports, strict=True)
    ]
    for thread in threads:
        thread.start()
    time.sleep(options.warmup_seconds)
    emit("begin")
    began = time.monotonic()
    for reports in all_reports:
        reports.window_open = True
    time.sleep(options.seconds)
    for reports in all_reports:
        reports.window_open = False
    seconds = time.monotonic() - began
    emit("end")
    stop.set()
    for thread in threads:
        thread.join()
    total = Reports(
        acknowledged=sum(reports.acknowledged for reports in all_reports),
        errors=sum(reports.errors for reports in all_reports),
        window_records=sum(reports.window_records for reports in all_reports),
        first_error=next((reports.first_error for reports in all_reports if reports.first_error), ""),
        latencies_us=[latency for reports in all_reports for latency in reports.latencies_us],
    )
    log_growth = log_end(producers[0], options) - before
    emit_producing(total, options, total.acknowledged + total.errors, seconds, log_growth, single=True)


def run_paced(options: argparse.Namespace) -> None:
    producer, reports, produced = new_producer(options, 5, options.linger_ms, idempotent=True), Reports(), 0
    padding, before, opened = bytes(options.record_bytes - 8), log_end(producer, options), 0.0
    began = time.monotonic()
    total = int(options.rate * (options.warmup_seconds + options.seconds))
    for produced in range(total):
        while (wait_s := began + produced / options.rate - time.monotonic()) > 0:
            producer.poll(wait_s)
        if not opened and time.monotonic() >= began + options.warmup_seconds:
            opened, reports.window_open = time.monotonic(), True
            emit("begin")
        produce_one(producer, options, produced.to_bytes(8, sys.byteorder) + padding, reports)
    drain(producer, total, reports)
    reports.window_open = False
    seconds = time.monotonic() - opened
    emit("end")
    emit_producing(reports, options, total, seconds, log_end(producer, options) - before, single=False)
