"""`varve cluster health|reassign|elect-leaders|quorum|features`, `varve broker decommission` with three real nodes."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

from tests.cli.conftest import Varve


def health(varve: Varve) -> tuple[int, dict[str, Any]]:
    shown = varve("cluster", "health", "--format", "json")
    return shown.returncode, json.loads(shown.stdout)


def replicas(varve: Varve, topic: str) -> list[list[int]]:
    described = json.loads(varve("topic", "describe", topic, "--format", "json").stdout)
    return [partition["replicas"] for partition in described["topics"][0]["partitions"]]


def done(varve: Varve, *arguments: str) -> str:
    """Run a command that must succeed. Returns its output."""
    result = varve(*arguments)
    assert result.returncode == 0, (arguments, result.stdout, result.stderr)
    return result.stdout


def test_a_dead_node_is_reported_and_its_leaderships_come_back(
    varve: Varve,
    cluster: dict[str, Any],
) -> None:
    done(varve, "topic", "create", "three", "--partitions", "3", "--replication-factor", "3")
    done(varve, "topic", "create", "one", "--partitions", "3", "--replication-factor", "1")
    done(varve, "cluster", "health", "--exit-when-healthy")  # Wait until the new topics have leaders.
    code, report = health(varve)
    assert (code, report["healthy"], report["nodes"], report["nodes_down"]) == (0, True, [1, 2, 3], [])
    assert done(varve, "cluster", "health").splitlines()[:3] == [
        "CLUSTER HEALTH OVERVIEW",
        "=======================",
        "Healthy:                          true",
    ]
    lost = replicas(varve, "one").index([2])
    os.kill(next(node["pid"] for node in cluster["nodes"] if node["node_id"] == 2), signal.SIGKILL)
    while True:  # Until the other partitions have new leaders.
        code, report = health(varve)
        assert code == (0 if report["healthy"] else 10)
        if report["nodes_down"] == [2] and report["leaderless_partitions"] == [f"one/{lost}"]:
            break
    assert report["unhealthy_reasons"][0] == "nodes down"
    unfinished = varve("cluster", "elect-leaders", "--topic", "one")
    assert unfinished.returncode == 1 and f"one-{lost}" in unfinished.stdout

    done(varve, "cluster", "up")
    assert "true" in done(varve, "cluster", "health", "--exit-when-healthy").splitlines()[-7]
    while varve("cluster", "elect-leaders").returncode != 0:
        pass  # It has not caught up yet.
    assert done(varve, "cluster", "elect-leaders") == "Every partition is led by its preferred replica.\n"
    voters = json.loads(done(varve, "cluster", "quorum", "--format", "json"))
    assert [row["node_id"] for row in voters["replicas"]] == [1, 2, 3]
    assert {row["lag"] for row in voters["replicas"]} == {0}


def test_partitions_move_by_a_plan_and_back_and_a_broker_is_removed(
    varve: Varve,
    cluster: dict[str, Any],
    tmp_path: Path,
) -> None:
    done(varve, "topic", "create", "t", "--partitions", "4", "--replication-factor", "2")
    before = replicas(varve, "t")
    plan, back = tmp_path / "plan.json", tmp_path / "back.json"
    plan.write_text(done(varve, "cluster", "reassign", "generate", "--topic", "t", "--brokers", "1,2"))
    assert varve("cluster", "reassign", "verify", str(plan)).returncode == 1
    back.write_text(done(varve, "cluster", "reassign", "execute", str(plan), "--wait"))
    done(varve, "cluster", "reassign", "verify", str(plan))
    assert {node_id for each in replicas(varve, "t") for node_id in each} == {1, 2}
    done(varve, "cluster", "reassign", "execute", str(back), "--wait")
    assert replicas(varve, "t") == before
    assert "Nothing" in done(varve, "cluster", "reassign", "cancel", "--all")

    left = done(varve, "broker", "decommission", "3")
    assert "Broker 3 holds nothing and is unregistered" in left
    assert {node_id for each in replicas(varve, "t") for node_id in each} == {1, 2}
    assert health(varve)[1]["nodes"] == [1, 2]
    again = varve("broker", "decommission", "3")
    assert again.returncode == 1 and "there is no broker 3" in again.stderr
    stuck = varve("broker", "decommission", "2")
    assert stuck.returncode == 1 and "has 2 replicas" in stuck.stderr


def test_levels_of_features_are_shown_and_set(
    varve: Varve, cluster: dict[str, Any], ports: list[int]
) -> None:
    def level() -> Any:
        rows = json.loads(done(varve, "cluster", "features", "--format", "json"))["features"]
        return {row["feature"]: row["finalized_version_level"] for row in rows}["transaction.version"]

    shown = done(varve, "cluster", "features").splitlines()
    assert [line.split()[1] for line in shown] == ["group.version", "transaction.version"]
    assert "SupportedMaxVersion: 2  FinalizedVersionLevel: 2  Epoch: " in shown[1]
    set_level = ("cluster", "features", "set")
    assert done(varve, *set_level, "transaction.version=1") == "transaction.version was downgraded to 1.\n"
    assert level() == 1
    assert done(varve, *set_level, "transaction.version=1") == "transaction.version already has level 1.\n"
    # The option counts at either place.
    server, nobody = f"localhost:{ports[2]}", "localhost:1"
    up = "transaction.version=2"
    assert "upgraded to 2" in done(varve, "cluster", "features", "-b", nobody, "set", up, "-b", server)
    refused = varve("cluster", "features", "-b", nobody, "set", "transaction.version=0")
    assert refused.returncode == 1 and nobody in refused.stderr
    for wrong, code, words in (
        ("transaction.version=3", 1, "supports 0 to 2"),
        ("group.version=0", 1, "group.coordinator.rebalance.protocols"),
        ("nope=1", 1, "INVALID_UPDATE_VERSION"),
        ("transaction.version=x", 2, "not a level"),
        ("transaction.version", 2, "KEY=VALUE"),
    ):
        refused = varve(*set_level, wrong)
        assert refused.returncode == code and words in refused.stderr, refused.stderr
    assert level() == 2


def test_an_invalid_plan_is_refused_with_a_reason(
    varve: Varve,
    cluster: dict[str, Any],
    tmp_path: Path,
) -> None:
    done(varve, "topic", "create", "t")
    plan = tmp_path / "plan.json"
    for text, words in (
        ("{}", "not a plan"),
        ('{"version": 2, "partitions": []}', "version 2"),
        ('{"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [9]}]}', "broker 9"),
        ('{"version": 1, "partitions": [{"topic": "t", "partition": 5, "replicas": [1]}]}', "no partition 5"),
    ):
        plan.write_text(text)
        refused = varve("cluster", "reassign", "execute", str(plan))
        assert refused.returncode == 1 and words in refused.stderr, refused.stderr
    assert varve("cluster", "reassign", "cancel").returncode == 2
    unknown = varve("cluster", "reassign", "generate", "--topic", "nope")
    assert unknown.returncode == 1 and "there is no topic nope" in unknown.stderr


def test_commands_say_that_no_broker_answers(varve: Varve) -> None:
    for arguments in (
        ("cluster", "health"),
        ("cluster", "quorum"),
        ("cluster", "features"),
        ("broker", "decommission", "1"),
    ):
        refused = varve(*arguments, "-b", "localhost:1")
        assert refused.returncode == 1 and "no broker answers at localhost:1" in refused.stderr
