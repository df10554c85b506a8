"""Java's own consumers and tools with groups of both protocols: share, are killed, come back, describe."""

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
from tests.integration.test_committed_offsets import OFFSETS
from tests.storage.test_kafka_reads_our_files import TOOL, pytestmark  # noqa: F401 slow, and needs Kafka's jars

#: A JVM of its own that starts fast and takes little.
JAVA = ["java", "-Xmx200m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]


class JavaConsumer:
    """Kafka's VerifiableConsumer: each thing that happens to it is a line of JSON."""

    def __init__(
        self,
        cluster: BrokerCluster,
        topic: str,
        settings: Path,
        protocol: str = "classic",
        **configured: object,
    ) -> None:
        self.partitions: set[int] = set()
        self.assignments = 0
        self.consumed = 0
        session = []
        if protocol == "classic":  # where the broker assigns it has these settings
            session = ["--session-timeout", str(configured.pop("session.timeout.ms", SESSION_MS))]
            configured |= {"heartbeat.interval.ms": 200}
        settings.write_text("".join(f"{name}={value}\n" for name, value in configured.items()))
        command = [
            *JAVA, "-cp", class_path(), "org.apache.kafka.tools.VerifiableConsumer",
            "--bootstrap-server", cluster.bootstrap, "--topic", topic, "--group-id", f"{topic}-group",
            "--group-protocol", protocol, *session, "--command-config", str(settings),
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
            self.partitions |= {each["partition"] for each in event["partitions"]}
        elif event["name"] == "partitions_revoked":
            self.partitions -= {each["partition"] for each in event["partitions"]}
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

    def one(
        cluster: BrokerCluster, topic: str, protocol: str = "classic", **settings: object
    ) -> JavaConsumer:
        path = tmp_path / f"consumer-{len(started)}"
        started.append(JavaConsumer(cluster, topic, path, protocol, **settings))
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


def test_java_consumers_are_assigned_by_the_broker(
    make_cluster: ClusterFactory, start: Callable[..., JavaConsumer]
) -> None:
    """The consumer protocol (KIP-848), and what of it Kafka reads in our log."""
    cluster = make_cluster(
        group__consumer__heartbeat__interval__ms="200",
        group__consumer__session__timeout__ms="3000",
        offsets__topic__num__partitions="1",
    )
    topic = "java-assigned"
    group = ["--group", f"{topic}-group"]
    create(cluster, topic)
    first = start(cluster, topic, "consumer")
    eventually(lambda: share([first]), "one consumer has all", 60)
    second = start(cluster, topic, "consumer")
    eventually(lambda: share([first, second]), "two consumers share", 60)
    members = group_command(cluster, "--describe", *group, "--members", "--verbose")
    assert members.count(f"{topic}:") == 4, members  # what each has, and what it is to have
    written = len(produce(cluster, topic, 20))
    eventually(lambda: first.consumed + second.consumed == written, "all is consumed", 60)
    state = group_command(cluster, "--describe", *group, "--state")
    assert "Stable" in state and "uniform" in state
    assert re.search(
        f"{topic}-group +Consumer +Stable", group_command(cluster, "--list", "--state", "--type")
    )
    cluster.kill(next(x.node_id for x in cluster.brokers.values() if f":{x.port} " in state))
    written += len(produce(cluster, topic, 20))
    eventually(lambda: first.consumed + second.consumed == written, "all that came meanwhile is consumed", 60)
    second.end(signal.SIGKILL)
    written += len(produce(cluster, topic, 20))
    eventually(lambda: first.consumed + second.consumed >= written, "the one that is left has all", 60)
    first.end()
    offsets = group_command(cluster, "--describe", *group, "--offsets")
    assert len(re.findall(r" 60 +60 +0 ", offsets)) == PARTITIONS, offsets
    cluster.terminate()
    segment = max(
        (segment for node_id in cluster.brokers for segment in cluster.segments(node_id, OFFSETS)),
        key=lambda path: path.stat().st_size,
    )
    command = [TOOL, "tool", "org.apache.kafka.tools.DumpLogSegments", "--offsets-decoder", "--files"]
    dumped = subprocess.run([*command, str(segment)], capture_output=True, text=True, check=True, timeout=120)
    for record_type in (3, 5, 6, 7, 8):
        assert f'"type":"{record_type}","data":{{"groupId":"{topic}-group"' in dumped.stdout, record_type
    assert '"assignedPartitions":[{' in dumped.stdout and '"assignmentEpochs":[' in dumped.stdout
    assert "isvalid: false" not in dumped.stdout
