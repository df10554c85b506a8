"""Readers reach the end of a compacted log whose last records are gone or are deletions: Java's console consumer, and
Spark, which plans a read up to the end that it was told and waits for it."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.integration.conftest import running
from tests.integration.harness import BrokerCluster, eventually
from tests.integration.tables import LIMIT_S, NODE, SETTINGS, TOPIC, read_table, write
from tests.pipeline.conftest import connector, spark  # noqa: F401 fixtures
from tests.storage.helpers import replace_by_filler
from tests.storage.test_kafka_reads_our_files import TOOL

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pipeline.spark.connector import Connector

pytestmark = pytest.mark.slow
GROUP = "reader-of-tails"
KEYS = 20
#: The first record is left, whatever becomes of the others.
KEPT = (b"kept", b"value")


class Tail(NamedTuple):
    cluster: BrokerCluster
    end_offset: int
    offsets: list[int]
    """Of the records that are left."""


@pytest.fixture(scope="module", params=["deletions", "emptied batch", "filler"])
def tail(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tail]:
    with running(tmp_path_factory.mktemp("tail"), 1, **NODE) as cluster:
        if request.param == "filler":
            yield _with_filler(cluster)
        else:
            yield _deleted(cluster, are_deletions_kept=request.param == "deletions")


def _deleted(cluster: BrokerCluster, *, are_deletions_kept: bool) -> Tail:
    """Of all keys but the first, the deletions are left, or nothing: then the last batch is emptied, and stays."""
    retention_ms = "86400000" if are_deletions_kept else "0"
    with cluster.wire() as wire:
        assert wire.create(TOPIC, 1, 1, **{**SETTINGS, "delete_retention_ms": retention_ms}).error_code == 0
    keys = [b"k%d" % number for number in range(KEYS)]
    write(cluster, KEPT)
    write(cluster, *((key, b"v") for key in keys))
    write(cluster, *((key, None) for key in keys))
    deletions = range(1 + KEYS, 1 + 2 * KEYS) if are_deletions_kept else range(0)

    def is_compacted() -> bool | None:
        values, records, deletion_count = read_table(cluster)
        assert values.items() >= {KEPT}
        return True if (records, deletion_count) == (1 + len(deletions), len(deletions)) else None

    eventually(is_compacted, "only the first record, and perhaps deletions, are left", LIMIT_S)
    return Tail(cluster, 1 + 2 * KEYS, [0, *deletions])


def _with_filler(cluster: BrokerCluster) -> Tail:
    """No pass leaves a filler at the end of a log, but a log that is cut there may end with one."""
    with cluster.wire() as wire:
        assert wire.create(TOPIC, 1, 1).error_code == 0
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 0})
    for number in range(KEYS):
        producer.produce(TOPIC, b"%d" % number, partition=0)
        assert producer.flush(LIMIT_S) == 0
    cluster.terminate()
    (segment,) = (cluster[1].data / f"{TOPIC}-0").glob("*.log")
    segment.write_bytes(replace_by_filler(segment.read_bytes(), 1, KEYS))
    cluster.start()
    return Tail(cluster, KEYS, [0])


def committed(cluster: BrokerCluster) -> int:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": GROUP})
    try:
        (partition,) = consumer.committed([TopicPartition(TOPIC, 0)], LIMIT_S)
        return int(partition.offset)
    finally:
        consumer.close()


@pytest.mark.skipif(
    shutil.which("java") is None or not Path(TOOL).exists(), reason="no Java, or no Kafka jars here"
)
def test_javas_console_consumer(tail: Tail, tmp_path: Path) -> None:
    output = tmp_path / "output"
    command = [
        TOOL, "tool", "org.apache.kafka.tools.consumer.ConsoleConsumer", "--topic", TOPIC, "--from-beginning",
        "--bootstrap-server", tail.cluster.bootstrap, "--group", GROUP, "--formatter-property", "print.offset=true",
        "--command-property", "auto.commit.interval.ms=200",
    ]  # fmt: skip
    with output.open("w") as file:
        consumer = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT)
    try:
        # It commits where it stands: behind all that it was sent, also what holds no record.
        eventually(lambda: committed(tail.cluster) == tail.end_offset or None, "the end is reached", LIMIT_S)
    finally:
        consumer.send_signal(signal.SIGTERM)
        consumer.wait(LIMIT_S)
    assert [int(x) for x in re.findall(r"^Offset:(\d+)", output.read_text(), re.MULTILINE)] == tail.offsets


@pytest.fixture(scope="module")
def connected(spark: SparkSession, connector: Connector | None) -> SparkSession:  # noqa: F811
    if connector is None:
        pytest.skip("Spark's Kafka connector cannot be had here")
    return spark


def source(tail: Tail) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": tail.cluster.bootstrap,
        "subscribe": TOPIC,
        "startingOffsets": "earliest",
        "failOnDataLoss": "true",
        # It waits so long for a record that does not come.
        "kafkaConsumer.pollTimeoutMs": "20000",
    }


def test_spark_reads_all_at_once(tail: Tail, connected: SparkSession) -> None:
    rows = connected.read.format("kafka").options(**source(tail)).load().select("offset").collect()
    assert [row.offset for row in rows] == tail.offsets


def test_spark_reads_a_stream_up_to_the_end(tail: Tail, connected: SparkSession, tmp_path: Path) -> None:
    offsets = connected.readStream.format("kafka").options(**source(tail)).load().select("offset")
    query = (
        offsets.writeStream.format("parquet")
        .option("path", str(tmp_path / "read"))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(int(LIMIT_S))
    progress = query.lastProgress
    assert progress is not None
    assert json.loads(progress["sources"][0]["endOffset"]) == {TOPIC: {"0": tail.end_offset}}
    rows = connected.read.parquet(str(tmp_path / "read")).sort("offset").collect()
    assert [row.offset for row in rows] == tail.offsets
