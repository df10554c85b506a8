"""A node that was forked is as one that was started as a program."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import count
from pathlib import Path

import pytest

import varve
from broker.cli.attached.forked_nodes import new_spawn
from broker.cli.processes import spawn_process
from protocol.records.batch import HEADER_BYTES
from tests.integration.harness import eventually
from tests.python_package.helpers import node_processes

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="nodes are forked on Linux alone")


def test_it_keeps_nothing_of_the_supervisor() -> None:
    """No pipe to the owner, no lock: both must end with the supervisor."""
    with varve.Cluster(1) as cluster:
        pid = node_processes(cluster.directory)[1].pid
        held = {os.readlink(link) for link in Path(f"/proc/{pid}/fd").iterdir()}
        kinds = {target for target in held if target.startswith("/") and not target.startswith("/dev/")}
        assert kinds and all(target.startswith(f"{cluster.directory}/node-1/") for target in kinds)
        supervisor = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]
        pipes = {os.readlink(link) for link in Path(f"/proc/{supervisor}/fd").iterdir()}
        assert not {target for target in held & pipes if target.startswith("pipe:")}


def test_it_starts_anew_in_the_same_process() -> None:
    """A node whose metadata log is damaged runs its command again (broker/main.py)."""
    settings = {
        "metadata.log.segment.ms": 200,
        "varve.compaction.initial.delay.ms": 3000,
        "varve.compaction.interval.ms": 300,
    }
    with varve.Cluster(3, settings) as cluster:
        cluster.create_topic("first")
        process = node_processes(cluster.directory)[2]
        _damage(Path(cluster.directory, "node-2", "data"))
        numbers = count()

        def has_started_anew() -> bool:
            cluster.create_topic(f"topic-{next(numbers)}")  # so that there is something to be compacted
            return "node starts anew" in cluster.log(2, 1000)

        eventually(has_started_anew, "a pass of compaction reads what is damaged")
        eventually(lambda: cluster.log(2, 1000).count(" started ") == 2, "it starts, and serves")
        cluster.heal()
        assert f"node 2  {cluster.address(2)}  running, pid {process.pid}" in cluster.describe()
        shown = subprocess.run(
            ["ps", "-ww", "-o", "args=", "-p", str(process.pid)], capture_output=True, text=True, check=True
        )
        assert "isolated.py broker.cli start" in shown.stdout


def _damage(data: Path) -> None:
    """Flip a bit in the records of the oldest batch."""
    segment = min(path for folder in data.glob("__cluster_metadata-*") for path in folder.glob("*.log"))
    with segment.open("r+b") as file:
        file.seek(HEADER_BYTES)
        (byte,) = file.read(1)
        file.seek(HEADER_BYTES)
        file.write(bytes([byte ^ 1]))


def test_nodes_are_programs_on_other_systems(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert new_spawn() is spawn_process
