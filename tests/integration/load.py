"""Load that keeps a ledger, and the check that the ledger and the topic agree.

An idempotent producer sends records numbered per key, as fast as its pacing says, and notes each acknowledgement. Then
the whole topic is read back: every acknowledged record is there once, none is there twice, numbers of a key ascend.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

#: A key's records all land in one partition, so their order is the topic's to keep.
KEYS = 16
SETTINGS = {
    "socket.connection.setup.timeout.ms": 2000,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 200,
    # A paused node keeps its connections open: without this its requests would wait 60 s for nothing.
    "socket.timeout.ms": 5000,
    # A connection that is refused is no news here.
    "log_level": 2,
}


@dataclass
class Ledger:
    """What a load sent and what came of it."""

    sent: int = 0
    #: Of (key, number), with the time of the acknowledgement.
    acknowledged: dict[tuple[int, int], float] = field(default_factory=dict)
    failed: dict[tuple[int, int], str] = field(default_factory=dict)

    def longest_gap_s(self, since: float) -> float:
        """The longest that one key waited between two acknowledgements, from `since` (time.monotonic) on.

        Per key, because a key is a partition: the others go on while one has no leader.
        """
        longest = 0.0
        for key in range(KEYS):
            times = sorted(at for (owner, _), at in self.acknowledged.items() if owner == key and at >= since)
            longest = max([longest, *(after - before for before, after in pairwise([since, *times]))])
        return longest


class Load:
    """`with Load(bootstrap, topic) as load:` produces while the block runs, then until everything is answered."""

    def __init__(
        self, bootstrap: str, topic: str, *, records_per_s: int = 2000, value_bytes: int = 200
    ) -> None:
        self.topic = topic
        self.ledger = Ledger()
        self._bootstrap = bootstrap
        self._pause_s = KEYS / records_per_s
        self._filler = b"x" * value_bytes
        self._stop = threading.Event()
        self._progress = threading.Condition()
        self._errors: list[str] = []
        self._producer = Producer(
            {
                **SETTINGS,
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 5,
                "delivery.timeout.ms": 120_000,
                "error_cb": self._on_error,
            }
        )
        self._thread = threading.Thread(target=self._run, name="load")

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        # Now, not when the garbage is collected: it goes on asking for its topic, and that creates the topic on
        # whatever cluster has these ports by then.
        del self._producer

    def _on_error(self, error: KafkaError) -> None:
        if error.fatal():
            self._errors.append(str(error))

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            for key in range(KEYS):
                self._send(key, number)
            number += 1
            self._producer.poll(self._pause_s)
        self._producer.flush(120)

    def _send(self, key: int, number: int) -> None:
        def answered(error: KafkaError | None, _: Message) -> None:
            with self._progress:
                if error is None:
                    self.ledger.acknowledged[key, number] = time.monotonic()
                else:
                    self.ledger.failed[key, number] = str(error)
                self._progress.notify_all()

        while True:
            try:
                self._producer.produce(
                    self.topic, b"%d " % number + self._filler, b"key-%d" % key, on_delivery=answered
                )
                self.ledger.sent += 1
                return
            except BufferError:
                self._producer.poll(0.05)

    def wait_acknowledged(self, more: int, timeout_s: float = 60) -> None:
        """Wait until so many more records are acknowledged than now."""
        with self._progress:
            wanted = len(self.ledger.acknowledged) + more
            assert self._progress.wait_for(
                lambda: len(self.ledger.acknowledged) >= wanted or self._errors, timeout_s
            ), f"{len(self.ledger.acknowledged)} acknowledged after {timeout_s} s, not {wanted}"
        assert not self._errors, self._errors

    def check(self) -> Ledger:
        """Compare with the topic. Call when the load has ended."""
        assert not self._thread.is_alive()
        assert not self._errors
        ledger = self.ledger
        assert not ledger.failed, list(ledger.failed.items())[:5]
        assert len(ledger.acknowledged) == ledger.sent, "the load was flushed"
        found: Counter[tuple[int, int]] = Counter()
        latest: dict[int, int] = {}
        for message in read_all(self._bootstrap, self.topic):
            key, number = (
                int((message.key() or b"").removeprefix(b"key-")),
                int((message.value() or b"").split()[0]),
            )
            found[key, number] += 1
            assert number > latest.get(key, -1), f"key {key}: {number} after {latest[key]}"
            latest[key] = number
        missing = [record for record in ledger.acknowledged if not found[record]]
        assert not missing, f"{len(missing)} of {ledger.sent} acknowledged records lost: {missing[:10]}"
        doubled = [record for record, count in found.items() if count > 1]
        assert not doubled, f"{len(doubled)} records twice: {doubled[:10]}"
        assert len(found) == ledger.sent
        return ledger


def read_all(bootstrap: str, topic: str, timeout_s: float = 60, **settings: object) -> list[Message]:
    """Every record between the start and the end of every partition; in order within each."""
    consumer = Consumer(
        {
            **SETTINGS,
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            **settings,
        }
    )
    try:
        ends: dict[int, int] = {}
        starts: list[TopicPartition] = []
        for partition in consumer.list_topics(topic, timeout=30).topics[topic].partitions:
            low, high = _ends(consumer, TopicPartition(topic, partition))
            if low < high:
                ends[partition] = high
                starts.append(TopicPartition(topic, partition, low))
        consumer.assign(starts)
        found: list[Message] = []
        deadline = time.monotonic() + timeout_s
        while ends:
            assert time.monotonic() < deadline, (
                f"{topic}: {len(found)} records read, these ends not reached: {ends}"
            )
            for message in consumer.consume(1000, 0.2):
                error = message.error()
                if error is not None:
                    raise KafkaException(error)
                found.append(message)
                partition, offset = message.partition() or 0, message.offset() or 0
                if ends.get(partition) == offset + 1:
                    del ends[partition]
        return found
    finally:
        consumer.close()


def _ends(consumer: Consumer, partition: TopicPartition, timeout_s: float = 30) -> tuple[int, int]:
    """Start and end; asks again while librdkafka has yet to learn who leads."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return consumer.get_watermark_offsets(partition, timeout=10)
        except KafkaException:
            if time.monotonic() > deadline:
                raise
