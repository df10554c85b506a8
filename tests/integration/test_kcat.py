"""kcat 1.7.1 of Debian: librdkafka 2.0.2, which reads our version ranges its own way (client-behaviour.md A.2)."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import Any

import pytest

from protocol.records.batch import Compression, iter_batches
from tests.integration.harness import BrokerCluster

KCAT = shutil.which("kcat")
pytestmark = pytest.mark.skipif(KCAT is None, reason="kcat is not installed (Debian: apt-get install kcat)")


def kcat(cluster: BrokerCluster, *arguments: str, stdin: str = "", must_work: bool = True) -> str:
    assert KCAT is not None
    done = subprocess.run(
        [KCAT, "-b", cluster.bootstrap, *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode == 0) == must_work, done.stderr
    return done.stdout if must_work else done.stderr


def consume(cluster: BrokerCluster, topic: str, *arguments: str) -> list[dict[str, Any]]:
    out = kcat(cluster, "-C", "-t", topic, "-p", "0", "-e", "-q", "-J", *arguments)
    return [json.loads(line) for line in out.splitlines()]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_produce_and_consume(cluster: BrokerCluster, topic: str, codec: str) -> None:
    lines = [f"k{number}:value {number} {'again ' * 10}" for number in range(300)]
    produce = ["-P", "-t", topic, "-p", "0", "-K:", "-z", codec, "-H", "h=1", "-X", "linger.ms=50"]
    kcat(cluster, *produce, stdin="\n".join(lines) + "\n")

    found = consume(cluster, topic)
    assert [record["offset"] for record in found] == list(range(300))
    assert [f"{record['key']}:{record['payload']}" for record in found] == lines
    assert {tuple(record["headers"]) for record in found} == {("h", "1")}

    with cluster.wire_to_leader(topic) as wire:
        data = wire.fetch(topic, 0)
    assert isinstance(data.records, memoryview)
    kept = {header.compression_id for _, header in iter_batches(data.records)}
    assert kept == {Compression[codec.upper()]}, "an old librdkafka drops compression in silence"


def test_idempotence_acks_and_tombstones(cluster: BrokerCluster, topic: str) -> None:
    for settings in (["-X", "acks=0"], ["-X", "acks=1"], ["-X", "enable.idempotence=true"]):
        kcat(cluster, "-P", "-t", topic, "-p", "0", "-K:", "-Z", *settings, stdin="gone:\nkept:x\n")
    found: list[dict[str, Any]] = []
    while len(found) < 6:  # acks=0: nobody told kcat that the records are in
        found = consume(cluster, topic)
    assert [(record["key"], record["payload"]) for record in found] == [("gone", None), ("kept", "x")] * 3


def test_consume_from_the_end_and_from_a_time(cluster: BrokerCluster, topic: str) -> None:
    kcat(cluster, "-P", "-t", topic, "-p", "0", stdin="".join(f"{number}\n" for number in range(10)))
    assert [record["payload"] for record in consume(cluster, topic, "-o", "-3")] == ["7", "8", "9"]
    assert [record["payload"] for record in consume(cluster, topic, "-o", "4", "-c", "2")] == ["4", "5"]
    assert len(consume(cluster, topic, "-o", "s@1")) == 10
    assert kcat(cluster, "-Q", "-t", f"{topic}:0:1").strip().endswith("offset 0")


def test_metadata(cluster: BrokerCluster, topic: str) -> None:
    listed = json.loads(kcat(cluster, "-L", "-J", "-t", topic))
    assert {broker["id"] for broker in listed["brokers"]} == set(cluster.brokers)
    (described,) = listed["topics"]
    assert described["partitions"][0]["leader"] == cluster.leader_of(topic)
    assert {replica["id"] for replica in described["partitions"][0]["replicas"]} == set(cluster.brokers)


def test_a_topic_that_is_not_there(cluster: BrokerCluster) -> None:
    told = kcat(cluster, "-C", "-t", "kcat-no-such", "-p", "0", "-e", must_work=False)
    assert "Unknown" in told
