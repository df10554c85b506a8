"""What every job needs: its output, its clock, its clients, and the end of the log."""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition


class JobError(Exception):
    """The job cannot be done; the message goes to stderr."""


def emit(event: str, **fields: Any) -> None:
    print(json.dumps({"event": event, **fields}), flush=True)


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
