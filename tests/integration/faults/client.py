"""Real clients that write down what they do and see, as tests/history describes it: one process each.

    python -m tests.integration.faults.client produce NAME BOOTSTRAP TOPIC PARTITIONS SEED HISTORY KIND END_TIMEOUT_S
    python -m tests.integration.faults.client consume NAME BOOTSTRAP TOPIC PARTITIONS SEED HISTORY

SIGTERM ends it in order: a producer waits for what is under way, then calls it unknown.
"""

from __future__ import annotations

import json
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any, TextIO

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

SETTINGS: dict[str, Any] = {
    "socket.connection.setup.timeout.ms": 2000,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 500,
    "retry.backoff.ms": 50,
    "retry.backoff.max.ms": 500,
    # A paused or cut-off node keeps its connections open: without this its requests would wait 60 s for nothing.
    "socket.timeout.ms": 4000,
    "topic.metadata.refresh.interval.ms": 5000,
    "log_level": 2,
}
#: The topic takes batches of at most so many bytes; what is larger is refused before it is appended.
MAX_MESSAGE_BYTES = 32 << 10
#: Errors after which the record is certainly in no log: the broker answers them before it appends, and nothing was
#: tried again (a producer with retries may have appended an earlier attempt).
_CERTAIN = {KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.NOT_ENOUGH_REPLICAS, KafkaError.INVALID_REQUIRED_ACKS}
#: Idempotent; plain, retrying (may double); plain, each record tried once (its failures can be certain).
KINDS = ("idempotent", "plain", "once")


class Stopped:
    """Whether SIGTERM has come."""

    def __init__(self) -> None:
        self.is_set = False
        signal.signal(signal.SIGTERM, self._stop)
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def _stop(self, *_: object) -> None:
        self.is_set = True


class History:
    """The file of one process."""

    def __init__(self, path: Path) -> None:
        self._file: TextIO = path.open("w", encoding="utf-8")

    def write(self, **operation: Any) -> None:
        operation["end_ns"] = time.monotonic_ns()
        self._file.write(json.dumps(operation) + "\n")

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> History:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class RecordingProducer:
    """Sends for a while as one producer after the other, each a process in the history's sense."""

    def __init__(
        self, name: str, bootstrap: str, topic: str, partitions: int, history: History, kind: str
    ) -> None:
        self._name = name
        self._topic = topic
        self._partitions = partitions
        self._history = history
        self._kind = kind
        self._number = 0
        self._settings = {
            **SETTINGS,
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "linger.ms": 5,
            "batch.size": 8192,
        }
        if kind == "idempotent":
            # Never given up by itself: after that librdkafka promises nothing about what it sends again.
            self._settings |= {"enable.idempotence": True, "delivery.timeout.ms": 2**31 - 1}
        else:
            self._settings |= {"retries": 1000 if kind == "plain" else 0, "delivery.timeout.ms": 8000}

    def run(self, stopped: Stopped, rng: random.Random, records_per_s: float, end_timeout_s: float) -> None:
        life = 0
        while not stopped.is_set:
            life += 1
            process = f"{self._name}.{life}"
            pending: dict[str, dict[str, Any]] = {}
            producer = Producer(self._settings)
            until = time.monotonic() + rng.uniform(10, 60)
            while time.monotonic() < until and not stopped.is_set:
                self._send(producer, process, pending, rng)
                producer.poll(0)
                time.sleep(rng.expovariate(records_per_s))
            # At times without waiting: what is under way then stays unknown.
            if stopped.is_set or rng.random() < 0.7:
                producer.flush(end_timeout_s if stopped.is_set else 10)
            producer.purge()
            producer.flush(5)
            for send in pending.values():
                self._history.write(**send, outcome="unknown")

    def _send(
        self, producer: Producer, process: str, pending: dict[str, dict[str, Any]], rng: random.Random
    ) -> None:
        self._number += 1
        value = f"{self._name}-{self._number}"
        send = {
            "op": "send",
            "process": process,
            "topic": self._topic,
            "partition": rng.randrange(self._partitions),
            "key": f"k{rng.randrange(20)}",
            "value": value,
            "idempotent": self._kind == "idempotent",
            "begin_ns": time.monotonic_ns(),
        }
        is_too_large = self._kind == "once" and rng.random() < 0.02
        filler = " " + "x" * (2 * MAX_MESSAGE_BYTES if is_too_large else rng.randrange(200))

        def answered(error: KafkaError | None, message: Message) -> None:
            if pending.pop(value, None) is None:
                return
            if error is None:
                offset = message.offset()
                known = offset is not None and offset >= 0
                self._history.write(**send, outcome="ok", offset=offset if known else None)
                return
            is_certain = self._kind == "once" and error.code() in _CERTAIN
            outcome = "failed" if is_certain else "unknown"
            self._history.write(**send, outcome=outcome, error=error.name())

        pending[value] = send
        try:
            producer.produce(
                self._topic,
                value + filler,
                str(send["key"]),
                int(str(send["partition"])),
                on_delivery=answered,
            )
        except BufferError:
            del pending[value]
            producer.poll(0.1)


def produce(arguments: list[str]) -> None:
    name, bootstrap, topic, partitions, seed, path, kind, end_timeout_s = arguments
    history = History(Path(path))
    producer = RecordingProducer(name, bootstrap, topic, int(partitions), history, kind)
    producer.run(Stopped(), random.Random(seed), 60, float(end_timeout_s))
    history.close()


def consume(arguments: list[str]) -> None:
    """Assign some partitions from some offset, poll for some seconds, and again."""
    name, bootstrap, topic, partitions, seed, path = arguments
    rng, history, stopped = random.Random(seed), History(Path(path)), Stopped()
    consumer = new_consumer(bootstrap)
    furthest = dict.fromkeys(range(int(partitions)), 0)
    assignment = 0
    while not stopped.is_set:
        assignment += 1
        chosen = rng.sample(sorted(furthest), rng.randint(1, len(furthest)))
        starts = {x: rng.choice([furthest[x], furthest[x], rng.randint(0, furthest[x])]) for x in chosen}
        history.write(
            op="assign",
            process=name,
            assignment=assignment,
            partitions=[[topic, partition, offset] for partition, offset in starts.items()],
        )
        consumer.assign([TopicPartition(topic, partition, offset) for partition, offset in starts.items()])
        until = time.monotonic() + rng.uniform(5, 30)
        while time.monotonic() < until and not stopped.is_set:
            records = []
            for message in consumer.consume(200, 0.2):
                if (error := message.error()) is not None:
                    history.write(op="note", process=name, error=error.name(), what=error.str())
                    continue
                records.append(as_record(topic, message))
                partition, offset = records[-1][1], records[-1][2]
                furthest[partition] = max(furthest[partition], offset + 1)
            if records:
                history.write(op="poll", process=name, assignment=assignment, records=records)
    consumer.close()
    history.close()


def as_record(topic: str, message: Message) -> list[Any]:
    """Of the value only the part that tells it from others; the rest is weight."""
    return [
        topic,
        message.partition(),
        message.offset(),
        bytes(message.value() or b"").split(b" ")[0].decode(),
    ]


def new_consumer(bootstrap: str, settings: dict[str, Any] | None = None) -> Consumer:
    """It reads what is committed, from partitions and offsets that it is told. `settings` go before ours."""
    return Consumer(
        {
            **SETTINGS,
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            # Never silently somewhere else: an offset out of range is an error that is written down.
            "auto.offset.reset": "error",
            "check.crcs": True,
            "fetch.wait.max.ms": 100,
            **(settings or {}),
        }
    )


if __name__ == "__main__":
    {"produce": produce, "consume": consume}[sys.argv[1]](sys.argv[2:])
