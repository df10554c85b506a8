"""`varve topic offsets|purge` with a real node."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Varve


@pytest.fixture
def records(varve: Varve, ports: list[int]) -> Iterator[None]:
    """A cluster of one node. The topic "foo" has two partitions, and the second holds ten records."""
    assert varve("cluster", "up", "--ports", str(ports[0])).returncode == 0
    try:
        assert varve("topic", "create", "foo", "--partitions", "2").returncode == 0
        lines = "".join(f"1:{number}\n" for number in range(10))
        options = ["--partition", "1"]
        assert varve("produce", "foo", *options, stdin=lines).returncode == 0
        yield
    finally:
        varve("cluster", "down", "--delete-data", "--yes")


@pytest.mark.usefixtures("records")
def test_records_are_purged_and_offsets_shown(varve: Varve, tmp_path: Path) -> None:
    def shown(*arguments: str) -> list[str]:
        done = varve("topic", *arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    assert shown("offsets", "foo") == ["foo:0:0", "foo:1:10"]
    assert shown("offsets", "foo", "--time", "max-timestamp", "--partitions", "0") == ["foo:0:"]
    assert shown("offsets", "foo", "--time", "0", "--partitions", "1") == ["foo:1:0"]
    purged = shown("purge", "foo", "--before-offset", "4", "--partitions", "1")
    assert purged == ["partition: foo-1\tlow_watermark: 4"]
    assert shown("offsets", "--time", "earliest") == ["foo:0:0", "foo:1:4"]
    targets = [{"topic": "foo", "partition": 1, "offset": 6}]
    (tmp_path / "targets.json").write_text(json.dumps({"partitions": targets, "version": 1}))
    purged = shown("purge", "--offset-json-file", "targets.json", "--format", "json")
    assert json.loads(purged[0]) == {"partitions": [{"topic": "foo", "partition": 1, "low_watermark": 6}]}
    partly = varve("topic", "purge", "foo", "--before-offset", "7")
    assert partly.returncode == 1
    assert partly.stdout == "partition: foo-1\tlow_watermark: 7\n"
    assert "foo-0" in partly.stderr and "OFFSET_OUT_OF_RANGE" in partly.stderr
    assert shown("purge", "foo", "--all", "--yes")[1] == "partition: foo-1\tlow_watermark: 10"
    assert (
        json.loads(shown("offsets", "foo", "--time", "-2", "--format", "json")[0])["partitions"][1]["offset"]
        == 10
    )


@pytest.mark.usefixtures("records")
def test_missing_topics_and_partitions_are_named(varve: Varve) -> None:
    for arguments, complaint in (
        (["offsets", "bar"], "Topic 'bar' does not exist"),
        (["offsets", "foo", "--partitions", "7"], "Topic 'foo' has no partition 7"),
        (["purge", "bar", "--all", "--yes"], "Topic 'bar' does not exist"),
    ):
        done = varve("topic", *arguments)
        assert (done.returncode, complaint in done.stderr) == (1, True), done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["purge", "foo"],
        ["purge", "foo", "--all", "--before-offset", "3"],
        ["purge", "--all"],
        ["purge", "foo", "--before-offset", "-1"],
        ["offsets", "foo", "--time", "yesterday"],
        ["offsets", "foo", "--time", "-9"],
        ["offsets", "foo", "--partitions", "a"],
    ],
)
def test_an_ambiguous_command_is_refused(varve: Varve, arguments: list[str]) -> None:
    assert varve("topic", *arguments, "-b", "localhost:1").returncode == 2
