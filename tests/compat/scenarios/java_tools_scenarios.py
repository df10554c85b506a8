"""The tools that come with Kafka, run as its own shell scripts run them: a class, options, and what it prints."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

LOGGING = Path(__file__).parent.parent / "java" / "log4j2.properties"
TIMEOUT_S = 180
#: These processes live for a second: what a JVM does to become fast later only takes time.
FEW_CYCLES = ["-Xmx200m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
RECORDS = 1000


def command(
    main_class: str, bootstrap: str, *arguments: str, option: str = "--bootstrap-server"
) -> list[str]:
    java = [
        "java",
        *FEW_CYCLES,
        f"-Dlog4j2.configurationFile={LOGGING}",
        "-cp",
        os.environ["COMPAT_CLASS_PATH"],
    ]
    return [*java, f"org.apache.kafka.tools.{main_class}", option, bootstrap, *arguments]


def tool(main_class: str, bootstrap: str, *arguments: str, option: str = "--bootstrap-server") -> str:
    done = subprocess.run(
        command(main_class, bootstrap, *arguments, option=option),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def fill(bootstrap: str, topic: str) -> None:
    pairs = ["--topic", topic, "--num-records", str(RECORDS), "--record-size", "100", "--throughput", "-1"]
    said = tool("ProducerPerformance", bootstrap, *pairs)
    assert said.strip().splitlines()[-1].startswith(f"{RECORDS} records sent")


@pytest.fixture
def filled(bootstrap: str, topic: str) -> str:
    fill(bootstrap, topic)
    return topic


def test_topic_command(bootstrap: str, name: str, admin: AdminClient) -> None:
    settings = ["--partitions", "2", "--replication-factor", "3", "--config", "retention.ms=60000"]
    tool("TopicCommand", bootstrap, "--create", "--topic", name, *settings)
    assert name in tool("TopicCommand", bootstrap, "--list").split()
    said = tool("TopicCommand", bootstrap, "--describe", "--topic", name)
    assert "PartitionCount: 2" in said
    assert "retention.ms=60000" in said
    tool("TopicCommand", bootstrap, "--alter", "--topic", name, "--partitions", "5")
    assert "PartitionCount: 5" in tool("TopicCommand", bootstrap, "--describe", "--topic", name)
    assert not tool(
        "TopicCommand", bootstrap, "--describe", "--under-replicated-partitions", "--topic", name
    ).strip()
    tool("TopicCommand", bootstrap, "--delete", "--topic", name)
    assert name not in admin.list_topics(timeout=10).topics


def test_producer_performance_and_offsets(bootstrap: str, filled: str) -> None:
    latest = tool("GetOffsetShell", bootstrap, "--topic", filled)
    assert sum(int(line.split(":")[2]) for line in latest.split()) == RECORDS
    earliest = tool("GetOffsetShell", bootstrap, "--topic", filled, "--time", "earliest")
    assert earliest.split() == [f"{filled}:{partition}:0" for partition in range(4)]


def test_delete_records_command(bootstrap: str, filled: str, tmp_path: Path) -> None:
    wanted = {
        "version": 1,
        "partitions": [{"topic": filled, "partition": index, "offset": -1} for index in range(4)],
    }
    file = tmp_path / "offsets.json"
    file.write_text(json.dumps(wanted), encoding="utf-8")
    tool("DeleteRecordsCommand", bootstrap, "--offset-json-file", str(file))
    ends = tool("GetOffsetShell", bootstrap, "--topic", filled, "--time", "latest")
    assert tool("GetOffsetShell", bootstrap, "--topic", filled, "--time", "earliest") == ends
    assert sum(int(line.split(":")[2]) for line in ends.split()) == RECORDS


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_verifiable_consumer_and_group_command(
    bootstrap: str, filled: str, group: str, protocol: str
) -> None:
    options = [
        "--topic",
        filled,
        "--group-id",
        group,
        "--group-protocol",
        protocol,
        "--max-messages",
        str(RECORDS),
    ]
    options += ["--reset-policy", "earliest"]
    events = [json.loads(line) for line in tool("VerifiableConsumer", bootstrap, *options).splitlines()]
    assert sum(event["count"] for event in events if event["name"] == "records_consumed") >= RECORDS
    assert all(event["success"] for event in events if event["name"] == "offsets_committed")

    of_group = ["--group", group]
    assert group in tool("consumer.group.ConsumerGroupCommand", bootstrap, "--list").split()
    described = tool("consumer.group.ConsumerGroupCommand", bootstrap, "--describe", *of_group)
    rows = [line.split() for line in described.splitlines() if line.startswith(group)]
    assert {row[5] for row in rows} == {"0"}, f"everything is read and committed: {described}"
    assert "Empty" in tool(
        "consumer.group.ConsumerGroupCommand", bootstrap, "--describe", "--state", *of_group
    )
    reset = ["--reset-offsets", "--to-earliest", "--topic", filled, "--execute"]
    tool("consumer.group.ConsumerGroupCommand", bootstrap, *of_group, *reset)
    described = tool("consumer.group.ConsumerGroupCommand", bootstrap, "--describe", *of_group)
    rows = [line.split() for line in described.splitlines() if line.startswith(group)]
    assert sum(int(row[5]) for row in rows) == RECORDS
    said = tool("consumer.group.ConsumerGroupCommand", bootstrap, "--delete", *of_group)
    assert "was successful" in said
    assert group not in tool("consumer.group.ConsumerGroupCommand", bootstrap, "--list").split()


def test_verifiable_producer(bootstrap: str, topic: str) -> None:
    pairs = ["--topic", topic, "--max-messages", "200", "--acks", "-1"]
    events = [json.loads(line) for line in tool("VerifiableProducer", bootstrap, *pairs).splitlines()]
    (summary,) = [event for event in events if event["name"] == "tool_data"]
    assert (summary["sent"], summary["acked"]) == (200, 200)
    assert sum(event["name"] == "producer_send_success" for event in events) == 200


def test_verifiable_consumers_share_a_group(
    bootstrap: str, topic: str, group: str, eventually: Callable[[Callable[[], object], str], None]
) -> None:
    """Two processes in one group: each ends up with two of the four partitions, and one takes over from the other."""
    options = ["--topic", topic, "--group-id", group]
    members = [
        subprocess.Popen(command("VerifiableConsumer", bootstrap, *options), stdout=subprocess.PIPE)
        for _ in range(2)
    ]
    describe = ["--describe", "--members", "--group", group]

    def shares() -> list[str]:
        said = tool("consumer.group.ConsumerGroupCommand", bootstrap, *describe)
        return sorted(line.split()[4] for line in said.splitlines() if line.startswith(group))

    try:
        eventually(lambda: shares() == ["2", "2"], "two members with two partitions each")
        members[0].send_signal(signal.SIGTERM)
        members[0].communicate(timeout=TIMEOUT_S)
        eventually(lambda: shares() == ["4"], "the other to take over")
    finally:
        for member in members:
            member.terminate()
            member.communicate(timeout=TIMEOUT_S)


def test_log_dirs_and_quorum(bootstrap: str, filled: str) -> None:
    said = tool("LogDirsCommand", bootstrap, "--describe", "--topic-list", filled)
    described = json.loads(said.splitlines()[-1])
    assert len(described["brokers"]) == 3
    assert "LeaderId" in tool("MetadataQuorumCommand", bootstrap, "describe", "--status")
