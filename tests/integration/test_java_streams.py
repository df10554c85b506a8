"""Kafka Streams with exactly_once_v2: two instances count words while a node and an instance are killed."""

from __future__ import annotations

import random
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.compat import java_suites
from tests.integration.harness import BrokerCluster, eventually
from tests.integration.test_java_groups import class_path
from tests.storage.test_kafka_reads_our_files import pytestmark  # noqa: F401 slow, and needs Kafka's jars

PARTITIONS = 4
WORDS = [f"word{number}" for number in range(50)]
LINES, WORDS_PER_LINE = 4_000, 3
#: The counts do not come for so long: a rebalance after a kill takes some seconds.
STALLED_S = 120


class Instance:
    def __init__(self, cluster: BrokerCluster, folder: Path) -> None:
        jars = class_path()
        java_suites.compile_sources(jars)
        arguments = [cluster.bootstrap, "count", "lines", "counts", str(folder)]
        command = java_suites.java(jars, "ExactlyOnceCount", arguments)
        self._log = folder.with_suffix(".log").open("a")
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=self._log, stderr=subprocess.STDOUT
        )

    def kill(self) -> None:
        self.process.kill()
        self.close()

    def close(self) -> None:
        """Its standard input ends, which is its sign to end."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(60)
        self._log.close()


class Reader:
    """Reads the counts, committed ones only."""

    def __init__(self, cluster: BrokerCluster) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "group.id": "reader",
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
            }
        )
        self._consumer.assign([TopicPartition("counts", partition, 0) for partition in range(PARTITIONS)])
        self.counts: dict[str, list[int]] = {}

    def read(self) -> int:
        """How many counts there are by now."""
        for message in self._consumer.consume(5_000, 0.5):
            if message.error() is None:
                word, count = message.key() or b"", message.value() or b""
                self.counts.setdefault(word.decode(), []).append(int(count))
        return sum(map(len, self.counts.values()))

    def wait_for(self, wanted: int) -> None:
        eventually(lambda: self.read() >= wanted, f"{wanted} counts", STALLED_S)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_counts_are_exact_although_a_node_and_an_instance_are_killed(
    own_cluster: BrokerCluster, tmp_path: Path, seed: int
) -> None:
    rng = random.Random(seed)
    with own_cluster.wire() as wire:
        for name in ("lines", "counts"):
            assert wire.create(name, PARTITIONS).error_code == 0
    producer = Producer({"bootstrap.servers": own_cluster.bootstrap, "enable.idempotence": True})
    expected: Counter[str] = Counter()

    def feed(lines: int) -> None:
        for _ in range(lines):
            words = rng.choices(WORDS, k=WORDS_PER_LINE)
            expected.update(words)
            producer.produce("lines", " ".join(words))
            producer.poll(0)
        assert producer.flush(60) == 0

    instances = [Instance(own_cluster, tmp_path / f"instance-{number}") for number in range(2)]
    reader = Reader(own_cluster)
    try:
        feed(LINES // 4)
        reader.wait_for(expected.total() // 2)
        feed(LINES // 4)
        killed = own_cluster.leader_of("count-words-repartition" if rng.random() < 0.5 else "counts")
        own_cluster.kill(killed)
        feed(LINES // 4)
        reader.wait_for(expected.total() // 2)
        instances[0].kill()
        own_cluster.start(killed)
        feed(LINES - 3 * (LINES // 4))
        instances[0] = Instance(own_cluster, tmp_path / "instance-0")
        reader.wait_for(expected.total())
        reader.read()
    finally:
        for instance in instances:
            instance.close()
    assert {word: sorted(counts) for word, counts in reader.counts.items()} == {
        word: list(range(1, count + 1)) for word, count in expected.items()
    }
