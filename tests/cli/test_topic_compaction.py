"""`varve topic describe --compaction` with a real cluster."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.cli.conftest import Varve

LIMIT_S = 60.0


def states(varve: Varve, topic: str) -> list[dict[str, Any]]:
    done = varve("topic", "describe", topic, "--compaction", "--format", "json")
    assert done.returncode == 0, done.stderr
    return [partition["compaction"] for partition in json.loads(done.stdout)["topics"][0]["partitions"]]


def eventually(varve: Varve, topic: str, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    deadline = time.monotonic() + LIMIT_S
    while True:
        (state,) = states(varve, topic)
        if holds(state):
            return state
        assert time.monotonic() < deadline, state


def write(varve: Varve) -> None:
    lines = "".join(f"{key}:{number}\n" for number in range(50) for key in "ab")
    assert varve("produce", "table", "--key-separator", ":", stdin=lines).returncode == 0


@pytest.mark.usefixtures("cluster")
def test_a_broker_that_is_away_is_named_with_the_reason(varve: Varve, cluster: dict[str, Any]) -> None:
    settings = ("--config", "cleanup.policy=compact", "--config", "min.cleanable.dirty.ratio=0.01")
    created = varve("topic", "create", "table", "--partitions", "1", "--replication-factor", "3", *settings)
    assert created.returncode == 0, created.stderr
    (fresh,) = states(varve, "table")
    assert (fresh["last_compacted"], fresh["mcco"], fresh["pins"]) == (None, None, [])
    away = next(each["broker"] for each in fresh["replicas"] if each["broker"] != fresh["broker"])
    os.kill(next(node["pid"] for node in cluster["nodes"] if node["node_id"] == away), signal.SIGKILL)
    write(varve)
    varve("topic", "compact", "table", "--wait")
    found = eventually(varve, "table", lambda state: bool(state["pins"]))
    assert {(pin["broker"], pin["reason"]) for pin in found["pins"]} == {(away, "offline")}
    assert {pin["bound"] for pin in found["pins"]} == {"mtro", "mxro"}
    assert found["mcco"] == 100
    text = varve("topic", "describe", "table", "--compaction", "--replicas").stdout
    rows = [line.split() for line in text.splitlines()]
    assert ["0", f"{found['broker']}*"] in [row[:2] for row in rows]
    assert ["0", str(away), *["-"] * 8, "offline"] in rows
    assert f"broker {away} keeps tombstones and transaction markers from going (MTRO, MXRO) since" in text
    assert varve("cluster", "up").returncode == 0
    assert varve("topic", "compact", "table", "--wait").returncode == 0
    healed = eventually(varve, "table", lambda state: state["mtro"] == 100)
    assert not healed["pins"]


@pytest.mark.usefixtures("cluster")
def test_wrong_usage(varve: Varve) -> None:
    assert varve("topic", "describe", "--replicas").returncode == 2
    none = varve("topic", "describe", "none", "--compaction")
    assert none.returncode == 1
    assert "does not exist" in none.stderr
