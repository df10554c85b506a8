"""Apache Kafka's own reader finds no fault with what real clients have a cluster write, on any of its nodes."""

from __future__ import annotations

import asyncio
import random
import re
import time
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaProducer

from tests.integration.conftest import ClusterFactory
from tests.integration.harness import BrokerCluster, eventually
from tests.integration.test_confluent import CODECS, produce
from tests.storage.test_kafka_reads_our_files import dump, pytestmark  # noqa: F401 slow, and needs Kafka's jars

RECORDS = 1000


def records() -> list[dict[str, Any]]:
    """Values that hardly compress, so that there are segments to roll; some records without key or value."""
    rng = random.Random(5)
    base = int(time.time() * 1000) - RECORDS
    return [
        {
            "key": None if number % 10 == 3 else b"key %d" % number,
            "value": None if number % 10 == 7 else rng.randbytes(rng.randrange(300)),
            "timestamp": base + number,
            "headers": [("h", b"%d" % number), ("h", b"")],
        }
        for number in range(RECORDS)
    ]


async def produce_by_aiokafka(bootstrap: str, topic: str, codec: str) -> None:
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap,
        compression_type=None if codec == "none" else codec,
        enable_idempotence=True,
        linger_ms=5,
        max_batch_size=4096,
    )
    await producer.start()
    try:
        reports = [
            await producer.send(
                topic,
                value=record["value"],
                key=record["key"],
                timestamp_ms=record["timestamp"],
                headers=record["headers"],
            )
            for record in records()
        ]
        await asyncio.gather(*reports)
    finally:
        await producer.stop()


def write(cluster: BrokerCluster) -> dict[str, str]:
    """A topic per client and codec; gives the codec of each."""
    topics = {f"{client}-{codec}": codec for client in ("confluent", "aiokafka") for codec in CODECS}
    for topic, codec in topics.items():
        with cluster.wire() as wire:
            assert wire.create(topic).error_code == 0
        cluster.leader_of(topic)
        if topic.startswith("confluent"):
            settings = {"compression.type": codec, "enable.idempotence": True, "batch.num.messages": 20}
            produce(cluster.bootstrap, topic, records(), **settings)
        else:
            asyncio.run(produce_by_aiokafka(cluster.bootstrap, topic, codec))
    return topics


def test_kafka_finds_no_fault_with_what_clients_wrote(make_cluster: ClusterFactory) -> None:
    cluster = make_cluster(log__segment__bytes="50000", log__index__interval__bytes="500")
    topics = write(cluster)

    def size(node_id: int, topic: str) -> int:
        return sum(path.stat().st_size for path in cluster.segments(node_id, topic))

    for topic in topics:
        eventually(
            lambda topic=topic: len({size(node_id, topic) for node_id in cluster.brokers}) == 1,  # type: ignore[misc]
            f"{topic} on all nodes",
        )
    cluster.terminate()

    folders = {
        (node_id, topic): cluster.segments(node_id, topic) for node_id in cluster.brokers for topic in topics
    }
    beside = [
        path
        for segments in folders.values()
        for pattern in ("*.index", "*.timeindex", "*.snapshot")
        for path in sorted(segments[0].parent.glob(pattern))
    ]
    assert {path.suffix for path in beside} == {".index", ".timeindex", ".snapshot"}
    text, complaints = dump(*(path for segments in folders.values() for path in segments), *beside)

    assert not complaints
    assert "isvalid: false" not in text
    _, *parts = re.split(r"^Dumping (.+)$", text, flags=re.MULTILINE)
    dumped = {Path(name): part for name, part in zip(parts[::2], parts[1::2], strict=True)}
    assert dumped.keys() >= {*beside}
    for (node_id, topic), segments in folders.items():
        part = "".join(dumped[path] for path in segments)
        assert [int(x) for x in re.findall(r"^\| offset: (\d+)", part, re.MULTILINE)] == list(range(RECORDS))
        assert sum(map(int, re.findall(r" count: (\d+) ", part))) == RECORDS
        codecs = set(re.findall(r"compresscodec: (\w+)", part.lower()))
        assert codecs == {topics[topic]}, (node_id, topic)
    assert any(len(segments) > 2 for segments in folders.values())
