"""`varve cluster` with three real nodes on this machine, some of which are killed."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from broker.cli.local_cluster import metrics_ports_of
from tests.cli.conftest import Varve, start


def states(varve: Varve) -> dict[int, str]:
    shown = varve("cluster", "status", "--format", "json")
    assert shown.returncode == 0
    return {node["node_id"]: node["state"] for node in json.loads(shown.stdout)["nodes"]}


def test_up_starts_dead_nodes_and_down_leaves_none_running(varve: Varve, cluster: dict[str, Any]) -> None:
    assert states(varve) == {1: "up", 2: "up", 3: "up"}
    assert varve("health").returncode == 0, "it finds the cluster of this directory by itself"

    pids = {node["node_id"]: node["pid"] for node in cluster["nodes"]}
    os.kill(pids[2], signal.SIGKILL)
    while states(varve)[2] != "down":
        pass
    assert varve("health").returncode == 1

    again = json.loads(varve("cluster", "up", "--format", "json").stdout)
    new_pids = {node["node_id"]: node["pid"] for node in again["nodes"]}
    assert new_pids[1] == pids[1]
    assert new_pids[3] == pids[3]
    assert new_pids[2] != pids[2]
    assert set(states(varve).values()) == {"up"}

    assert varve("cluster", "down").returncode == 0
    assert set(states(varve).values()) == {"down"}
    for pid in new_pids.values():
        assert not Path(f"/proc/{pid}").exists() or "Z" in Path(f"/proc/{pid}/stat").read_text().split(")")[1]


def test_another_number_of_nodes_is_refused_while_there_is_data(
    varve: Varve, cluster: dict[str, Any]
) -> None:
    refused = varve("cluster", "up", "--nodes", "2")
    assert refused.returncode == 1
    assert "--delete-data" in refused.stderr


def test_a_foreign_process_with_the_pid_of_a_dead_node_is_left_alone(
    varve: Varve, cluster: dict[str, Any], tmp_path: Path
) -> None:
    """The pid file names the process of this test with another start time. It is not shown as a node and not
    signalled."""
    pid_file = tmp_path / ".varve" / "node-1" / "pid"
    before = pid_file.read_text()
    pid_file.write_text(json.dumps([os.getpid(), "another boot/1"]))
    assert states(varve)[1] == "down"
    pid_file.write_text(before)
    assert states(varve)[1] == "up"


def test_topics_and_records_by_the_command_line(varve: Varve, cluster: dict[str, Any]) -> None:
    created = varve("topic", "create", "first", "--partitions", "2", "--replication-factor", "3")
    assert created.stdout == "Created topic first.\n", created.stderr
    assert varve("topic", "create", "first").returncode == 1
    assert varve("topic", "create", "first", "--if-not-exists").returncode == 0
    assert varve("topic", "list").stdout == "first\n"

    lines = "".join(f"k{number}:v{number}\n" for number in range(100))
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        written = varve("produce", "first", "-K", ":", "-H", "from:test", "-z", codec, stdin=lines)
        assert written.returncode == 0, written.stderr

    read = varve("consume", "first", "--from-beginning", "-e", "--format", "json")
    records = [json.loads(line) for line in read.stdout.splitlines()]
    assert len(records) == 500
    assert {record["value"] for record in records} == {f"v{number}" for number in range(100)}
    assert all(record["headers"] == [["from", "test"]] for record in records)
    for partition in (0, 1):
        offsets = [record["offset"] for record in records if record["partition"] == partition]
        assert offsets == list(range(len(offsets)))

    answer = json.loads(varve("topic", "describe", "first", "--offsets", "--format", "json").stdout)
    (described,) = answer["topics"]
    assert sum(partition["end_offset"] for partition in described["partitions"]) == 500
    text = varve("topic", "describe", "first").stdout.splitlines()
    assert text[0].startswith(
        f"Topic: first\tTopicId: {described['topic_id']}\tPartitionCount: 2\tReplicationFactor: 3\t"
    )
    assert text[1].startswith("\tTopic: first\tPartition: 0\tLeader: ")

    assert varve("consume", "first", "-p", "0", "-o", "-1", "-n", "1").returncode == 0
    assert varve("topic", "delete", "first", "--yes").stdout == "Deleted topic first.\n"
    assert varve("topic", "describe", "first").returncode == 1


def test_settings_and_partitions_are_changed_by_the_command_line(
    varve: Varve, cluster: dict[str, Any]
) -> None:
    assert varve("topic", "create", "changed", "--partitions", "2").returncode == 0
    assert (
        varve("topic", "add-partitions", "changed", "--num", "1").stdout
        == "Topic changed has 3 partitions.\n"
    )
    altered = varve("topic", "alter", "changed", "--partitions", "4", "--config", "retention.ms=77")
    assert altered.stdout == "Altered topic changed.\n", altered.stderr
    (described,) = json.loads(varve("topic", "describe", "changed", "--format", "json").stdout)["topics"]
    assert (described["partition_count"], described["configs"]) == (4, {"retention.ms": "77"})
    fewer = varve("topic", "alter", "changed", "--partitions", "3")
    assert fewer.returncode == 1 and "would not be an increase" in fewer.stderr

    config = ("config", "alter", "--topic", "changed")
    appended = varve(*config, "--append-config", "cleanup.policy=compact", "--delete-config", "retention.ms")
    assert appended.stdout == "Completed updating config for topic changed.\n", appended.stderr
    assert varve("config", "describe", "--topic", "changed").stdout == (
        "Dynamic configs for topic changed are:\n"
        "  cleanup.policy=delete,compact sensitive=false synonyms={"
        "DYNAMIC_TOPIC_CONFIG:cleanup.policy=delete,compact, DEFAULT_CONFIG:log.cleanup.policy=delete}\n"
    )
    defaults = ("--broker-defaults", "--add-config", "log.retention.ms=99")
    assert varve("config", "alter", *defaults).returncode == 0
    assert varve("config", "alter", "--broker", "2", "--add-config", "log.retention.ms=88").returncode == 0
    shown = json.loads(varve("config", "describe", "--broker", "2", "--format", "json").stdout)
    assert [(row["name"], row["value"], row["source"]) for row in shown["configs"]] == [
        ("log.retention.ms", "88", "DYNAMIC_BROKER_CONFIG")
    ]
    assert "log.retention.ms=99" in varve("config", "describe", "--broker-defaults").stdout
    timeout = "consumer.session.timeout.ms=50000"
    assert varve("config", "alter", "--group", "g", "--add-config", timeout).returncode == 0
    assert varve("config", "describe", "--group", "g").stdout.startswith(
        f"Dynamic configs for group g are:\n  {timeout} sensitive=false synonyms={{DYNAMIC_GROUP_CONFIG:{timeout}, "
    )
    refused = varve("config", "alter", "--broker", "2", "--add-config", "node.id=3")
    assert refused.returncode == 1 and "node.id" in refused.stderr
    assert varve("config", "alter", "--broker", "9", "--add-config", "log.retention.ms=1").returncode == 1
    assert (
        varve("config", "describe", "--topic", "missing").stderr == "varve: Topic 'missing' does not exist\n"
    )
    assert varve("config", "describe").returncode == 2


def test_each_node_shows_its_metrics_at_a_port_of_its_own(varve: Varve, cluster: dict[str, Any]) -> None:
    urls = [node["metrics"] for node in cluster["nodes"]]
    assert len(set(urls)) == 3
    for node_id, url in enumerate(urls, start=1):
        with urllib.request.urlopen(url, timeout=10) as answer:
            assert f'varve_node_info{{node_id="{node_id}",' in answer.read().decode()
    again = varve("cluster", "up")
    assert again.stdout.splitlines()[-1] == f"Metrics are at {' '.join(urls)}"


@pytest.mark.parametrize(
    ("ports", "metrics_ports"),
    [
        ((19092, 29092, 39092), [19094, 29094, 39094]),
        ((19092, 19094, 19096), [19098, 19100, 19102]),
        ((19092, 19095), [19094, 19097]),
        ((9092,), [9094]),
    ],
)
def test_metrics_ports_are_no_ports_of_other_nodes(ports: tuple[int, ...], metrics_ports: list[int]) -> None:
    assert metrics_ports_of(ports) == metrics_ports


def test_a_setting_takes_the_metrics_ports_away(varve: Varve, ports: list[int]) -> None:
    chosen = ",".join(map(str, ports))
    with socket.create_server(("127.0.0.1", ports[0] + 2)):
        refused = varve("cluster", "up", "--ports", chosen)
        assert refused.returncode == 1
        assert (
            f"port {ports[0] + 2} is in use by another process; --config varve.metrics.port=0"
            in refused.stderr
        )
        started = varve(
            "cluster", "up", "--ports", chosen, "--config", "varve.metrics.port=0", "--format", "json"
        )
        try:
            assert [node["metrics"] for node in json.loads(started.stdout)["nodes"]] == [None] * 3
        finally:
            varve("cluster", "down", "--grace", "10")


def test_a_wrong_setting_is_refused_before_it_is_kept(varve: Varve, node: str) -> None:
    for setting, complaint in (
        ("num.partitons=7", "did you mean num.partitions?"),
        ("num.partitions=x", "num.partitions"),
    ):
        refused = varve("cluster", "up", "--config", setting)
        assert refused.returncode == 2 and complaint in refused.stderr, refused.stderr
    assert varve("cluster", "down").returncode == 0
    assert varve("cluster", "up").returncode == 0, "nothing of it was kept"


def test_a_setting_is_kept_until_it_is_taken_back(varve: Varve, node: str) -> None:
    kept = varve("cluster", "up", "--config", "num.partitions=7")
    assert "node 1 still runs with the settings of its start" in kept.stderr
    varve("topic", "create", "before")
    varve("cluster", "down")
    assert "still" not in varve("cluster", "up").stderr
    varve("topic", "create", "kept")
    varve("cluster", "down")
    assert varve("cluster", "up", "--unset", "num.partitions").returncode == 0
    varve("topic", "create", "taken-back")
    listed = json.loads(varve("topic", "list", "--format", "json").stdout)["topics"]
    counts = {row["topic"]: row["partition_count"] for row in listed}
    assert counts == {"before": 1, "kept": 7, "taken-back": 1}
    refused = varve("cluster", "up", "--unset", "num.partitions")
    assert refused.returncode == 2 and "num.partitions is not set" in refused.stderr


def test_the_lines_of_a_failed_start_are_those_of_this_start(varve: Varve, node: str, tmp_path: Path) -> None:
    varve("cluster", "down")
    log = tmp_path / ".varve" / "node-1" / "log"
    log.write_text("an old failure\n")
    layout = tmp_path / ".varve" / "cluster.json"
    layout.write_text(layout.read_text().replace('"settings": {}', '"settings": {"num.partitons": "7"}'))
    refused = varve("cluster", "up")
    assert refused.returncode == 1
    assert "did you mean num.partitions?" in refused.stderr and "an old failure" not in refused.stderr
    assert log.with_suffix(".1").read_text() == "an old failure\n"
    # What an older version has kept can be taken back, too.
    assert varve("cluster", "up", "--unset", "num.partitons").returncode == 0


def test_logs_are_shown_and_followed(varve: Varve, node: str, tmp_path: Path) -> None:
    shown = varve("cluster", "logs", "-n", "1000").stdout.splitlines()
    assert any("started" in line for line in shown) and all(line.startswith("node 1 | ") for line in shown)
    assert len(varve("cluster", "logs", "1", "-n", "2").stdout.splitlines()) == 2
    assert "there is no node 2" in varve("cluster", "logs", "2").stderr
    process = start(["cluster", "logs", "--follow", "-n", "1"], tmp_path, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b"node 1 | ")
        varve("cluster", "down")
        while b"stopping" not in process.stdout.readline():
            pass
        varve("cluster", "up")  # Into a new file.
        while b"started" not in process.stdout.readline():
            pass
    finally:
        process.kill()
        process.communicate()


def test_the_data_is_deleted_for_those_who_are_sure(varve: Varve, node: str, tmp_path: Path) -> None:
    refused = varve("cluster", "down", "--delete-data")
    assert refused.returncode == 2 and "--yes" in refused.stderr
    assert (tmp_path / ".varve" / "node-1" / "data").exists()
    assert varve("cluster", "down", "--delete-data", "--yes").returncode == 0
    assert not (tmp_path / ".varve" / "node-1").exists()


def test_brokers_and_topics_are_shown_at_a_glance(varve: Varve, node: str) -> None:
    varve("topic", "create", "t", "-p", "3")
    host, port = node.split(":")
    lines = [line.split() for line in varve("cluster", "info").stdout.splitlines()]
    assert (
        lines[0] == ["CLUSTER"] and ["1*", host, port, "up", "3", "3"] in lines and ["t", "3", "1"] in lines
    )
    assert varve("broker", "list").stdout.splitlines()[1].split() == ["1*", host, port, "up", "3", "3"]
