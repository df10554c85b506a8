"""Clients read a log in which compaction has left fillers, in the middle and at the end."""

from __future__ import annotations

import asyncio
import shutil
import subprocess

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AiokafkaPartition
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from tests.integration.conftest import ClusterFactory
from tests.integration.harness import BrokerCluster
from tests.storage.helpers import replace_by_filler

TOPIC, LAST = "t", 30
FIRST = 5


@pytest.fixture(params=[25, LAST], ids=["middle", "end"])
def compacted(
    make_cluster: ClusterFactory, request: pytest.FixtureRequest
) -> tuple[BrokerCluster, list[int]]:
    """A cluster, and the offsets that are left."""
    cluster = make_cluster(1)
    with cluster.wire() as wire:
        assert wire.create(TOPIC, replicas=1).error_code == 0
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 0})
    for number in range(LAST):
        producer.produce(TOPIC, b"%d" % number, partition=0)
        assert producer.flush(30) == 0
    cluster.terminate()
    (segment,) = (cluster[1].data / f"{TOPIC}-0").glob("*.log")
    segment.write_bytes(replace_by_filler(segment.read_bytes(), FIRST, request.param))
    cluster.start()
    return cluster, [*range(FIRST), *range(request.param, LAST)]


@pytest.mark.parametrize("start", [0, 12])
def test_confluent_kafka(compacted: tuple[BrokerCluster, list[int]], start: int) -> None:
    cluster, left = compacted
    settings = {"bootstrap.servers": cluster.bootstrap, "group.id": "g", "enable.partition.eof": True}
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(TOPIC, 0, start or OFFSET_BEGINNING)])
    found = []
    while True:
        message = consumer.poll(30)
        assert message is not None
        if (error := message.error()) is not None:
            assert (error.name(), message.offset()) == ("_PARTITION_EOF", LAST), error
            break
        found.append((message.offset(), message.value()))
    consumer.close()
    assert found == [(offset, b"%d" % offset) for offset in left if offset >= start]


async def test_aiokafka(compacted: tuple[BrokerCluster, list[int]]) -> None:
    cluster, left = compacted
    consumer = AIOKafkaConsumer(bootstrap_servers=cluster.bootstrap)
    await consumer.start()
    partition, found = AiokafkaPartition(TOPIC, 0), []
    consumer.assign([partition])
    await consumer.seek_to_beginning(partition)
    async with asyncio.timeout(30):
        while await consumer.position(partition) < LAST:
            for records in (await consumer.getmany(timeout_ms=500)).values():
                found += [record.offset for record in records]
    await consumer.stop()
    assert found == left


@pytest.mark.skipif(
    shutil.which("kcat") is None, reason="kcat is not installed (Debian: apt-get install kcat)"
)
def test_kcat(compacted: tuple[BrokerCluster, list[int]]) -> None:
    cluster, left = compacted
    command = ["kcat", "-b", cluster.bootstrap, "-C", "-t", TOPIC, "-p", "0", "-e", "-q", "-f", "%o\n"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert [int(line) for line in done.stdout.split()] == left
