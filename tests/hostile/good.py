"""A client that behaves: 200 records a second with acks=all. Its latencies are the measure of every attack.

    python -m tests.hostile.good BOOTSTRAP TOPIC FILE

Each delivery is a line of FILE: [time of the send, seconds until the answer, error or null, number, partition, offset].
SIGTERM ends it, once what was sent is answered.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

RECORDS_PER_S = 200
VALUE_BYTES = 200
_DRAIN_S = 60


@dataclass(frozen=True, slots=True)
class Delivery:
    sent_at: float
    """By time.time()."""
    latency_s: float
    error: str | None
    number: int
    partition: int
    offset: int


def main() -> None:
    bootstrap, topic, file = sys.argv[1:]
    is_ending = False

    def end(*_: object) -> None:
        nonlocal is_ending
        is_ending = True

    signal.signal(signal.SIGTERM, end)
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": 0,
            "message.timeout.ms": 30_000,
            "log_level": 3,
        }
    )
    with Path(file).open("w", encoding="ascii", buffering=1) as out:
        number, next_at = 0, time.time()
        while not is_ending:
            producer.produce(topic, value(number), key=str(number % 1000), on_delivery=_note(out, number))
            number += 1
            next_at += 1 / RECORDS_PER_S
            while (left := next_at - time.time()) > 0:
                producer.poll(left)
        producer.flush(_DRAIN_S)


def value(number: int) -> bytes:
    return b"%d" % number + b"." * VALUE_BYTES


def _note(out: TextIO, number: int) -> Callable[[KafkaError | None, Message], None]:
    sent_at = time.time()

    def delivered(error: KafkaError | None, message: Message) -> None:
        latency_s = time.time() - sent_at
        place = (-1, -1) if error else (message.partition(), message.offset())
        out.write(json.dumps([sent_at, latency_s, str(error) if error else None, number, *place]) + "\n")

    return delivered


def deliveries(file: Path) -> list[Delivery]:
    """All that were noted so far."""
    complete = file.read_text(encoding="ascii").rpartition("\n")[0]
    return [Delivery(*json.loads(line)) for line in complete.splitlines()]


def missing(bootstrap: str, topic: str, noted: Iterable[Delivery]) -> list[Delivery]:
    """Those acknowledged records that are not where the broker said. Reads the whole topic."""
    wanted = {(each.partition, each.offset): each for each in noted if each.error is None}
    partitions = sorted({partition for partition, _ in wanted})
    ends = {
        partition: max(offset for owner, offset in wanted if owner == partition) for partition in partitions
    }
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "hostile-check", "log_level": 3})
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
        while ends and (message := consumer.poll(30)) is not None:
            if message.error():
                break
            partition, offset = message.partition(), message.offset()
            assert partition is not None and offset is not None
            place = (partition, offset)
            if place in wanted and message.value() == value(wanted[place].number):
                del wanted[place]
            if partition in ends and offset >= ends[partition]:
                del ends[partition]
    finally:
        consumer.close()
    return list(wanted.values())


if __name__ == "__main__":
    main()
