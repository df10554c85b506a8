"""`varve topic compact` with a real node."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cli.conftest import Varve


@pytest.fixture
def node(varve: Varve, ports: list[int]) -> Iterator[None]:
    assert varve("cluster", "up", "--ports", str(ports[0])).returncode == 0
    try:
        yield
    finally:
        varve("cluster", "down", "--delete-data", "--yes")


def create(varve: Varve, name: str, **settings: str) -> None:
    options = [
        part for key, value in settings.items() for part in ("--config", f"{key.replace('_', '.')}={value}")
    ]
    assert varve("topic", "create", name, "--partitions", "1", *options).returncode == 0


def write(varve: Varve, topic: str) -> None:
    """Ten values of each of two keys."""
    lines = "".join(f"{key}:{number}\n" for number in range(10) for key in "ab")
    assert varve("produce", topic, "--key-separator", ":", stdin=lines).returncode == 0


def compact(varve: Varve, *arguments: str) -> list[dict[str, Any]]:
    done = varve("topic", "compact", *arguments, "--format", "json")
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)["replicas"]
    return found


@pytest.mark.usefixtures("node")
def test_a_topic_is_compacted_at_once(varve: Varve) -> None:
    create(varve, "table", cleanup_policy="compact", min_cleanable_dirty_ratio="1.0")
    (empty,) = compact(varve, "table", "--wait")
    assert (empty["bytes_before"], empty["limit"]) == (0, "everything is clean")
    write(varve, "table")
    (done,) = compact(varve, "table", "--wait")
    assert done["cleaned_end_offset"] == 20
    assert done["bytes_after"] < done["bytes_before"]
    read = varve("consume", "table", "--from-beginning", "--exit-on-end")
    assert read.stdout.split() == ["9", "9"]
    (again,) = compact(varve, "table", "--wait")
    assert again["bytes_before"] == again["bytes_after"] == done["bytes_after"]


@pytest.mark.usefixtures("node")
def test_a_young_record_is_left_and_the_reason_is_shown(varve: Varve) -> None:
    create(varve, "table", cleanup_policy="compact", min_compaction_lag_ms="3600000")
    write(varve, "table")
    shown = varve("topic", "compact", "table", "--wait")
    assert shown.stdout == (
        "table-0\tbroker: 1\tbytes: 0 -> 0\ttook: 0 ms\tclean below: 0\t"
        "not further: the next segment has records younger than min.compaction.lag.ms\n"
    )


@pytest.mark.usefixtures("node")
def test_without_waiting_the_pass_is_begun(varve: Varve) -> None:
    create(varve, "table", cleanup_policy="compact,delete")
    assert varve("topic", "compact", "table").stdout == "table-0\tbroker: 1\tbegun\n"


@pytest.mark.usefixtures("node")
def test_refusals_are_shown(varve: Varve) -> None:
    create(varve, "plain")
    refused = varve("topic", "compact", "plain", "--wait")
    assert refused.returncode == 1
    assert "cleanup.policy" in refused.stdout and "POLICY_VIOLATION" in refused.stdout
    assert "Topic 'none' does not exist" in varve("topic", "compact", "none").stderr
    assert "has no partition 7" in varve("topic", "compact", "plain", "--partitions", "7").stderr
