"""Somebody else's nodes, by a command and process ids."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.errors import PipelineError
from pipeline.lab.nodes import ForeignNodes
from tests.integration.harness import eventually


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "600"]) as started:
        yield started
        started.kill()


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(") ", 1)[1][0]


def test_a_command_is_told_what_to_do_to_which_node(tmp_path: Path) -> None:
    script = tmp_path / "nodes.sh"
    script.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/told\n')
    script.chmod(0o755)
    nodes = ForeignNodes(f"{script} now", {})
    nodes.kill(1, 3)
    assert sorted((tmp_path / "told").read_text().splitlines()) == ["now kill 1", "now kill 3"]
    nodes.start(3)
    assert (tmp_path / "told").read_text().splitlines()[2:] == ["now start 3"]


def test_nodes_that_wait_for_each_other_are_started_together(tmp_path: Path) -> None:
    script = tmp_path / "nodes.sh"
    # Each waits until both have begun.
    script.write_text(
        f"#!/bin/sh\ntouch {tmp_path}/$2\nuntil [ -e {tmp_path}/1 ] && [ -e {tmp_path}/2 ]; do :; done\n"
    )
    script.chmod(0o755)
    ForeignNodes(str(script), {}).start(1, 2)


def test_a_process_is_stopped_and_goes_on(process: subprocess.Popen[bytes]) -> None:
    nodes = ForeignNodes("", {2: process.pid})
    nodes.freeze(2)
    eventually(lambda: _state(process.pid) == "T", "a stopped process")
    nodes.thaw(2)
    eventually(lambda: _state(process.pid) == "S", "a process that goes on")


def test_the_process_of_a_node_that_was_killed_is_not_known_any_more() -> None:
    nodes = ForeignNodes("true", {1: 4711})
    assert nodes.can_freeze(1)
    nodes.kill(1)
    assert not nodes.can_freeze(1)


def test_what_is_missing_is_said() -> None:
    nodes = ForeignNodes("false", {})
    with pytest.raises(PipelineError, match="false kill 1 ended with 1"):
        nodes.kill(1)
    with pytest.raises(PipelineError, match="--node-pid 2=PID"):
        nodes.freeze(2)
    with pytest.raises(PipelineError, match="--node-command COMMAND"):
        ForeignNodes("", {}).start(1)
