"""Java's own consumers and tools with groups of the classic protocol: share, are killed, come back, describe."""

from __future__ import annotations

import functools
import json
import re
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import ClusterFactory
from tests.integration.harness import BrokerCluster, eventually
from tests.integration.test_classic_groups import PARTITIONS, SESSION_MS, create, produce
from tests.storage.test_kafka_reads_our_files import TOOL, pytestmark  # noqa: F401 slow, and needs Kafka's jars

#: A JVM of its own that starts fast and takes little.
JAVA = ["java", "-Xmx200m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]


class JavaConsumer:
    """Kafka's VerifiableConsumer: each thing that happens to it is a line of JSON."""

    def __init__(self, cluster: BrokerCluster, topic: str, settings: Path, **configured: object) -> None:
        self.partitions: set[int] = set()
        self.assignments = 0
        self.consumed = 0
        session_ms = configured.pop("session.timeout.ms", SESSION_MS)
        configured |= {"heartbeat.interval.ms": 200}
        settings.write_text("".join(f"{name}={value}\n" for name, value in configured.items()))
        command = [
            *JAVA, "-cp", class_path(), "org.apache.kafka.tools.VerifiableConsumer",
            "--bootstrap-server", cluster.bootstrap, "--topic", topic, "--group-id", f"{topic}-group",
            "--session-timeout", str(session_ms), "--command-config", str(settings),
        ]  # fmt: skip
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                if line.startswith("{"):
                    self._take(json.loads(line))

    def _take(self, event: dict[str, Any]) -> None:
        if event["name"] == "partitions_assigned":
            self.assignments += 1
            self.partitions = {each["partition"] for each in event["partitions"]}
        elif event["name"] == "records_consumed":
            self.consumed += event["count"]

    def end(self, number: signal.Signals = signal.SIGTERM) -> None:
        self.process.send_signal(number)
        self.process.wait(timeout=20)
        self._reader.join()


@functools.cache
def class_path() -> str:
    return subprocess.run([TOOL, "classpath"], capture_output=True, text=True, check=True).stdout.strip()


def group_command(cluster: BrokerCluster, *arguments: str) -> str:
    tool = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
    command = [*JAVA, "-cp", class_path(), tool, "--bootstrap-server", cluster.bootstrap, *arguments]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., JavaConsumer]]:
    """`start(cluster, topic, **{"group.instance.id": "i"})`: a consumer, which is killed in the end."""
    started: list[JavaConsumer] = []

    def one(cluster: BrokerCluster, topic: str, **settings: object) -> JavaConsumer:
        started.append(JavaConsumer(cluster, topic, tmp_path / f"consumer-{len(started)}", **settings))
        return started[-1]

    yield one
    for consumer in started:
        consumer.end(signal.SIGKILL)


def share(found: list[JavaConsumer]) -> bool:
    owned = sorted(each for consumer in found for each in consumer.partitions)
    return all(consumer.partitions for consumer in found) and owned == list(range(PARTITIONS))


def test_java_consumers_share_and_outlive_each_other_and_the_coordinator(
    make_cluster: ClusterFactory, start: Callable[..., JavaConsumer]
) -> None:
    cluster = make_cluster(group__initial__rebalance__delay__ms="0", group__min__session__timeout__ms="1000")
    topic = "java"
    group = ["--group", f"{topic}-group"]
    create(cluster, topic)
    first, second = start(cluster, topic), start(cluster, topic)
    eventually(lambda: share([first, second]), "two consumers share", 40)
    written = len(produce(cluster, topic, 20))
    eventually(lambda: first.consumed + second.consumed == written, "all is consumed", 40)
    rebalances = first.assignments
    assert group_command(cluster, "--describe", *group, "--members", "--verbose").count("java:") == 2
    state = group_command(cluster, "--describe", *group, "--state")
    assert "Stable" in state and "range" in state
    cluster.kill(next(x.node_id for x in cluster.brokers.values() if f":{x.port} " in state))
    written += len(produce(cluster, topic, 20))
    eventually(lambda: first.consumed + second.consumed == written, "all that came meanwhile is consumed", 40)
    assert first.assignments == rebalances, "nobody had to join again"
    second.end(signal.SIGKILL)
    eventually(lambda: share([first]), "the one that is left has all", 40)
    first.end()
    offsets = group_command(cluster, "--describe", *group, "--offsets")
    assert len(re.findall(r" 40 +40 +0 ", offsets)) == PARTITIONS, offsets
    group_command(cluster, "--reset-offsets", *group, "--topic", topic, "--to-earliest", "--execute")
    offsets = group_command(cluster, "--describe", *group, "--offsets")
    assert len(re.findall(r" 0 +40 +40 ", offsets)) == PARTITIONS, offsets
    assert "successful" in group_command(cluster, "--delete", *group)


def test_a_java_static_member_comes_back_without_a_rebalance(
    cluster: BrokerCluster, start: Callable[..., JavaConsumer]
) -> None:
    topic = "java-static"
    create(cluster, topic)
    long = {"session.timeout.ms": 30_000}
    stays, leaves = (start(cluster, topic, **{"group.instance.id": each}, **long) for each in ("a", "b"))
    eventually(lambda: share([stays, leaves]), "two consumers share", 40)
    before = stays.assignments
    leaves.end()
    back = start(cluster, topic, **{"group.instance.id": "b"}, **long)
    eventually(lambda: share([stays, back]), "its partitions are its again", 40)
    assert stays.assignments == before
