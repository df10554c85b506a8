"""The command line without a cluster: help, configuration, exit codes, error messages."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import ROOT, Varve, environment
from tests.ports import free_ports


def test_help_names_every_command(varve: Varve) -> None:
    shown = varve("--help")
    assert shown.returncode == 0
    commands = (
        "start",
        "cluster",
        "broker",
        "topic",
        "config",
        "group",
        "produce",
        "consume",
        "health",
        "demo",
    )
    for command in commands:
        assert f"\n  {command} " in shown.stdout
        assert varve(command, "--help").returncode == 0


@pytest.mark.parametrize(
    ("arguments", "unwanted"),
    [
        (["--help"], {"confluent_kafka", "rich", "asyncio", "structlog", "uvloop", "protocol"}),
        (["start", "--check"], {"confluent_kafka", "rich"}),
        (["group", "describe", "--help"], {"confluent_kafka", "asyncio"}),
        (["demo", "divergence", "--help"], {"confluent_kafka", "rich", "asyncio", "structlog"}),
        (["health", "-b", "localhost:1"], {"confluent_kafka", "rich"}),
    ],
)
def test_a_command_imports_only_what_it_needs(arguments: list[str], unwanted: set[str]) -> None:
    """Most of the start-up time is imports. The healthcheck runs every few seconds, and help must be instant."""
    code = (
        "import sys, atexit\n"
        f"atexit.register(lambda: print(*sorted({unwanted!r} & set(sys.modules)), file=sys.stderr))\n"
        "from broker.cli.root import varve\n"
        f"varve({arguments!r})"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(), cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.stderr.strip() == ""


def test_start_check_prints_the_resulting_configuration(varve: Varve, tmp_path: Path) -> None:
    (tmp_path / "server.properties").write_text("node.id=2\nnum.partitions=5\nlog.retention.hours=1\n")
    shown = varve(
        "start",
        "--config",
        "server.properties",
        "--override",
        "num.partitions=7",
        "--check",
        KAFKA_NODE_ID="3",
    )
    assert shown.returncode == 0
    settings = dict(line.split("=", 1) for line in shown.stdout.splitlines())
    assert settings["node.id"] == "3"
    assert settings["num.partitions"] == "7"
    assert settings["log.retention.ms"] == "3600000"
    assert settings["controller.quorum.voters"] == "3@localhost:9093"

    (tmp_path / "shown").write_text(shown.stdout)
    assert varve("start", "--config", "shown", "--check").stdout == shown.stdout, (
        "the output can be used as a configuration"
    )


def test_a_wrong_configuration_is_one_line_and_exit_code_2(varve: Varve, tmp_path: Path) -> None:
    (tmp_path / "server.properties").write_text("log.segment.byte=1\n")
    refused = varve("start", "--config", "server.properties")
    assert refused.returncode == 2
    assert "did you mean log.segment.bytes?" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert varve("start", "--override", "node.id").returncode == 2
    assert varve("start", "--config", "missing").returncode == 2


def test_a_port_in_use_is_one_plain_line(varve: Varve) -> None:
    (port,) = free_ports(1)
    with socket.create_server(("localhost", port)):
        settings = (
            f"controller.quorum.voters=1@localhost:{port + 1}",
            f"listeners=PLAINTEXT://localhost:{port},CONTROLLER://localhost:{port + 1}",
            "log.dirs=data",
        )
        refused = varve("start", *(word for setting in settings for word in ("--override", setting)))
    assert refused.returncode == 1
    assert refused.stderr == f"varve: cannot listen on localhost:{port}: Address already in use\n"
    assert "[error" not in refused.stdout


def test_an_unknown_variable_is_a_warning(varve: Varve) -> None:
    shown = varve("start", "--check", KAFKA_LOG_SEGMENT_BYTE="1", KAFKA_HEAP_OPTS="-Xmx1G")
    assert shown.returncode == 0
    assert "KAFKA_LOG_SEGMENT_BYTE is not used" in shown.stderr
    assert "KAFKA_HEAP_OPTS" in shown.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["no-such-command"],
        ["topic", "create"],
        ["topic", "create", "t", "--partitions", "0"],
        ["topic", "create", "t", "--config", "novalue"],
        ["produce", "t", "--acks", "2"],
        ["produce", "t", "--key", "a", "--key-separator", ":"],
        ["consume", "t", "--offset", "middle"],
        ["consume", "t", "--from-beginning", "--offset", "1"],
        ["consume", "t", "--group", "g", "--partition", "1"],
        ["group", "describe"],
        ["group", "describe", "g", "--members", "--state"],
        ["group", "delete", "g", "--all-groups"],
        ["group", "reset-offsets", "g", "--all-topics"],
        ["group", "reset-offsets", "g", "--to-earliest"],
        ["group", "reset-offsets", "g", "--all-topics", "--to-earliest", "--dry-run", "--execute"],
        ["cluster", "up", "--nodes", "0"],
        ["cluster", "up", "--ports", "19092,19093"],
        ["cluster", "up", "--nodes", "2", "--ports", "19092"],
    ],
)
def test_wrong_usage_is_exit_code_2(varve: Varve, arguments: list[str]) -> None:
    assert varve(*arguments).returncode == 2


def test_health_fails_if_no_broker_answers(varve: Varve, ports: list[int]) -> None:
    asked = varve("health", "--bootstrap-server", f"localhost:{ports[0]}", "--format", "json")
    assert asked.returncode == 1
    [row] = json.loads(asked.stdout)["brokers"]
    assert row["healthy"] is False
    assert f"no broker answers at localhost:{ports[0]}" in row["problem"]


def test_a_port_in_use_is_reported_before_any_node_is_started(
    varve: Varve, ports: list[int], tmp_path: Path
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", ports[1]))
        taken.listen()
        refused = varve("cluster", "up", "--ports", ",".join(map(str, ports)))
    assert refused.returncode == 1
    assert (
        refused.stderr.strip() == f"varve: port {ports[1]} is in use by another process; --ports names others"
    )
    assert not list(tmp_path.glob(".varve/node-*"))
    # Otherwise the next command would talk to whoever has the port.
    assert not (tmp_path / ".varve" / "cluster.json").exists()


def test_a_damaged_layout_file_is_named(varve: Varve, tmp_path: Path) -> None:
    (tmp_path / ".varve").mkdir()
    (tmp_path / ".varve" / "cluster.json").write_text("{")
    for arguments in (["cluster", "up"], ["cluster", "down"], ["cluster", "status"], ["topic", "list"]):
        refused = varve(*arguments)
        assert refused.returncode == 1
        assert "cluster.json cannot be read" in refused.stderr
        assert "Traceback" not in refused.stderr


def test_without_a_cluster_down_succeeds_and_status_fails(varve: Varve) -> None:
    assert varve("cluster", "down").returncode == 0
    assert varve("cluster", "status").returncode == 1
