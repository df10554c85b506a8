"""The load driver's jobs on confluent-kafka, for machines without a C compiler or librdkafka's headers.

Same jobs, options and output as `native_driver/*.c`, with one gap: librdkafka's interceptors are C only, so requests
are not counted where one holds many records (`requests` is null), and request round trips are not reported.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

RETRY_PAUSE_S = 0.02
FLUSH_TIMEOUT_S = 60.0
CONSUME_BATCH = 20_000
QUANTILES: Mapping[str, float] = {"p50": 50, "p90": 90, "p99": 99, "p99_9": 99.9}


class JobError(Exception):
    """The job cannot be done; the message goes to stderr."""


def emit(event: str, **fields: Any) -> None:
    print(json.dumps({"event": event, **fields}), flush=True)


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


def monotonic_us() -> int:
    return time.monotonic_ns() // 1000


def client(options: argparse.Namespace, **settings: Any) -> dict[str, Any]:
    named = {key.replace("_", "."): value for key, value in settings.items()}
    return {"bootstrap.servers": options.bootstrap, "socket.nagle.disable": True, "log_level": 3, **named}


def new_producer(
    options: argparse.Namespace, in_flight: int, linger_ms: int, idempotent: bool = False
) -> Producer:
    settings = client(options, acks="all", linger_ms=linger_ms, batch_size=options.batch_bytes)
    settings |= {"max.in.flight.requests.per.connection": in_flight, "enable.idempotence": idempotent}
    settings |= {"batch.num.messages": 1_000_000, "queue.buffering.max.messages": 200_000}
    return Producer(settings)


def log_end(producer: Producer, options: argparse.Namespace) -> int:
    consumer = Consumer(client(options, group_id="varve-bench"))
    deadline = time.monotonic() + 10
    try:
        while True:
            try:
                _low, high = consumer.get_watermark_offsets(TopicPartition(options.topic, 0), timeout=5)
                return int(high)
            except KafkaException:  # a new or moved leader answers "not leader" for a moment
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
    finally:
        consumer.close()


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


@dataclass
class Pass:
    """One reading of offsets 0 up to an end. The clock runs from the first records to the last."""

    records: int = 0
    size_bytes: int = 0
    errors: int = 0
    timed_records: int = 0
    timed_bytes: int = 0
    seconds: float = 0.0


def read_through(options: argparse.Namespace, end_offset: int, seen: Counter[int] | None) -> Pass:
    result, next_offset, first_s, progress_s = Pass(), 0, 0.0, time.monotonic()
    settings = client(options, group_id="varve-bench", enable_auto_commit=False, auto_offset_reset="error")
    consumer = Consumer(settings | {"queued.min.messages": 2_000_000, "queued.max.messages.kbytes": 262_144})
    consumer.assign([TopicPartition(options.topic, 0, 0)])
    before_timing = (0, 0)
    while next_offset < end_offset:
        messages = consumer.consume(CONSUME_BATCH, 0.1)
        now_s = time.monotonic()
        if not messages and now_s - progress_s > options.timeout_ms / 1e3:
            result.errors += end_offset - next_offset
            break
        for message in messages:
            offset, value = message.offset(), message.value() or b""
            if message.error() is not None or offset is None:
                result.errors += 1
                continue
            result.errors += offset != next_offset
            next_offset = offset + 1
            result.records += 1
            result.size_bytes += len(value)
            if seen is not None:
                seen[int.from_bytes(value[:8], sys.byteorder)] += 1
        if messages:
            if not first_s:
                first_s, before_timing = now_s, (result.records, result.size_bytes)
            progress_s = now_s
    result.seconds = progress_s - first_s
    result.timed_records, result.timed_bytes = (
        result.records - before_timing[0],
        result.size_bytes - before_timing[1],
    )
    consumer.close()
    return result


def run_consume(options: argparse.Namespace) -> None:
    emit("begin")
    passes: list[Pass] = []
    deadline = time.monotonic() + options.seconds
    while not passes or (time.monotonic() < deadline and not passes[-1].errors):
        passes.append(read_through(options, options.expect_records, None))
    emit("end")
    emit(
        "result",
        records=sum(one.records for one in passes),
        bytes=sum(one.size_bytes for one in passes),
        timed_records=sum(one.timed_records for one in passes),
        timed_bytes=sum(one.timed_bytes for one in passes),
        seconds=sum(one.seconds for one in passes),
        passes=len(passes),
        errors=sum(one.errors for one in passes),
    )


def run_check(options: argparse.Namespace) -> None:
    seen: Counter[int] = Counter()
    result = read_through(options, log_end(new_producer(options, 1, 0), options), seen)
    expected = range(options.expect_records)
    foreign = sum(count for sequence, count in seen.items() if sequence not in expected)
    emit(
        "result",
        records=result.records,
        missing=sum(sequence not in seen for sequence in expected),
        duplicates=sum(seen[sequence] - 1 for sequence in expected if seen[sequence] > 1),
        errors=result.errors + foreign,
    )


def admin(options: argparse.Namespace) -> AdminClient:
    """Refused connections are what a starting cluster looks like: ask again at once."""
    settings = client(options, reconnect_backoff_ms=10, reconnect_backoff_max_ms=20, retry_backoff_ms=10)
    return AdminClient(settings | {"log_level": 0})


def create_once(client_of: AdminClient, options: argparse.Namespace, timeout_s: float) -> None:
    topic = NewTopic(
        options.topic, options.partitions, options.replication_factor, config={"file.delete.delay.ms": "500"}
    )
    client_of.create_topics([topic], request_timeout=timeout_s)[options.topic].result()


def wait_for_leader(client_of: AdminClient, options: argparse.Namespace) -> tuple[int, str]:
    deadline = time.monotonic() + options.timeout_ms / 1e3
    while time.monotonic() < deadline:
        metadata = client_of.list_topics(options.topic, timeout=5)
        partition = metadata.topics[options.topic].partitions.get(0)
        if partition is not None and partition.error is None and partition.leader in metadata.brokers:
            broker = metadata.brokers[partition.leader]
            return partition.leader, f"{broker.host}:{broker.port}"
        time.sleep(RETRY_PAUSE_S)
    raise JobError(f"topic {options.topic} has no leader after {options.timeout_ms} ms")


def run_create(options: argparse.Namespace) -> None:
    client_of, began = admin(options), time.monotonic()
    create_once(client_of, options, options.timeout_ms / 1e3)
    leader, address = wait_for_leader(client_of, options)
    emit("result", seconds=time.monotonic() - began, leader=leader, address=address)


def run_delete(options: argparse.Namespace) -> None:
    client_of = admin(options)  # a name of its own: the request dies with the client
    client_of.delete_topics([options.topic], request_timeout=options.timeout_ms / 1e3)[options.topic].result()
    emit("result")


def run_leader(options: argparse.Namespace) -> None:
    leader, address = wait_for_leader(admin(options), options)
    emit("result", leader=leader, address=address)


def run_first_ack(options: argparse.Namespace) -> None:
    client_of, deadline = admin(options), time.monotonic() + options.timeout_ms / 1e3
    emit("begin")
    while True:
        try:
            create_once(client_of, options, 1.0)
            break
        except KafkaException as error:
            if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
                break
            if time.monotonic() > deadline:
                raise
            time.sleep(RETRY_PAUSE_S)
    created_us, reports = monotonic_us(), Reports()
    producer = new_producer(options, 1, 0)
    produce_one(producer, options, bytes(options.record_bytes), reports)
    producer.flush(max(deadline - time.monotonic(), 1.0))
    if not reports.acknowledged:
        raise JobError(f"no acknowledgement: {reports.first_error or 'timed out'}")
    emit("result", acknowledged_us=monotonic_us(), created_us=created_us)


JOBS = {
    "create": run_create,
    "delete": run_delete,
    "leader": run_leader,
    "first-ack": run_first_ack,
    "produce": run_produce,
    "latency": run_latency,
    "paced": run_paced,
    "consume": run_consume,
    "check": run_check,
}


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    """The options of `native_driver/driver.c`, with its defaults."""
    parser = argparse.ArgumentParser(prog="python_driver")
    parser.add_argument("job", choices=list(JOBS))
    parser.add_argument("--bootstrap", default="localhost:19092")
    parser.add_argument("--topic", required=True)
    integers = {
        "partitions": 1,
        "replication-factor": 3,
        "record-bytes": 1024,
        "batch-bytes": 16384,
        "in-flight": 5,
    }
    integers |= {"linger-ms": 5, "producers": 1, "total-records": 0, "expect-records": 0, "timeout-ms": 60000}
    for name, default in integers.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    for name, seconds in {"rate": 500.0, "seconds": 5.0, "warmup-seconds": 1.0}.items():
        parser.add_argument(f"--{name}", type=float, default=seconds)
    return parser.parse_args(arguments)


def main() -> None:
    options = parse_arguments(sys.argv[1:])
    try:
        JOBS[options.job](options)
    except (KafkaException, JobError) as error:
        sys.exit(f"{options.job}: {error}")


if __name__ == "__main__":
    main()
